"""Words that users of other projects type: the error names ours."""

import pytest
from typer.testing import CliRunner

from holdfast.cli.whole import app
from holdfast.errors import ConfigError
from tests.command_line import run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "server.py"), "there is no command 'run'; use holdfast serve TARGET"),
        (("dev", "server.py"), "use holdfast serve TARGET --reload"),
        (("serve", "server.py", "--port", "9000"), "serve has no option --port; use --http 127.0.0.1:PORT"),
        (
            ("serve", "server.py", "--transport=http"),
            "serve has no option --transport; use --stdio, or --http",
        ),
    ],
)
def test_a_word_of_another_project_is_an_error_that_names_ours(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, list(words))
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def test_the_options_of_a_program_are_its_own() -> None:
    result = CliRunner().invoke(app, ["serve", "--http", "wrong:address:", "--", "program", "--port", "9000"])
    assert "--port" not in str(result.exception)


def test_an_unknown_command_is_still_an_error_of_usage() -> None:
    result = CliRunner().invoke(app, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


def test_ctrl_c_while_modules_are_imported_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.cli.quick.read", interrupted)
    told = run("demo")
    assert (told.status, told.err) == (130, "")
