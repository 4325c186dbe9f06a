"""`limpet serve` makes traces, and pushes metrics, if the standard variables of OpenTelemetry ask for them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from limpet.cli.telemetry import begin_tracing, pusher
from limpet.errors import ConfigError
from tests.messages import metadata, request
from tests.support import BOUND
from tests.unit.cli.test_serve import SMALL

QUIET = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
# One write: the thread of the log may write its own line between two.
MODULES = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(f"loaded {'opentelemetry' in sys.modules}\\n"))
"""


def served(module: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Serve one call on stdio."""
    call = request(1, "tools/call", {"name": "echo", "arguments": {"text": "x"}, "_meta": metadata()})
    return subprocess.run(
        [sys.executable, "-m", "limpet", "serve", f"{module}:server", "--stdio"],
        input=json.dumps(call) + "\n",
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        env={**QUIET, **variables},
    )


def test_an_exporter_that_is_named_gets_the_spans_and_stdout_stays_protocol() -> None:
    done = served(SMALL, OTEL_TRACES_EXPORTER="console")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]
    assert '"name": "tools/call echo"' in done.stderr
    assert '"service.name": "limpet"' in done.stderr


def test_an_exporter_of_metrics_that_is_named_gets_them_at_the_end_at_the_latest() -> None:
    done = served(SMALL, OTEL_METRICS_EXPORTER="console")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]
    assert '"name": "mcp.server.operation.duration"' in done.stderr
    assert '"gen_ai.tool.name": "echo"' in done.stderr
    assert '"service.name": "limpet"' in done.stderr
    assert '"name": "tools/call echo"' not in done.stderr, "traces are another signal"


def test_without_a_variable_opentelemetry_is_not_imported(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(MODULES + Path(SMALL).read_text())
    assert "loaded False" in served(str(module)).stderr
    assert "loaded False" in served(str(module), OTEL_TRACES_EXPORTER="none").stderr
    off = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_METRICS_EXPORTER": "none"}
    assert "loaded False" in served(str(module), OTEL_TRACES_EXPORTER="none", **off).stderr


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"},
        {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        },
    ],
)
def test_an_exporter_that_is_not_installed_is_an_error_that_names_its_package(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="install opentelemetry-exporter-otlp-proto-http or -grpc"):
        begin_tracing()
    if "OTEL_EXPORTER_OTLP_ENDPOINT" in variables:
        with pytest.raises(ConfigError, match="or change OTEL_METRICS_EXPORTER"):
            pusher()


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("OTEL_METRICS_EXPORTER", "prometheus", "use --admin"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "10s", "a number of milliseconds"),
    ],
)
def test_a_variable_that_cannot_work_is_an_error(
    name: str, value: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "console")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=error):
        pusher()


def test_the_sdk_that_is_not_installed_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match="opentelemetry-sdk"):
        begin_tracing()


def test_a_disabled_sdk_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "absent")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    begin_tracing()
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "absent")
    assert pusher() is None
