"""Options that are misspelt are refused where they are written."""

from typing import Any

import pytest

from limpet import Server
from limpet.server.context.sampling import sampling_params

MISSPELT: Any = {"max_token": 3}


async def hello() -> str:
    return "hello"


@pytest.mark.parametrize(
    ("register", "said"),
    [
        (
            lambda server: server.tool(titel="Hello")(hello),
            "a tool has no option 'titel'; did you mean 'title'?",
        ),
        (
            lambda server: server.prompt(icon=[])(hello),
            "a prompt has no option 'icon'; did you mean 'icons'?",
        ),
        (
            lambda server: server.resource("a://b", mime="text/plain")(hello),
            "a resource has no option 'mime'",
        ),
        (lambda _: sampling_params("hi", MISSPELT), "sampling has no option 'max_token'"),
        (lambda server: server.add_tool(hello, zzz=1), "a tool has no option 'zzz'; there are name, title"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest(register: Any, said: str) -> None:
    server = Server("s")
    with pytest.raises(TypeError) as refused:
        register(server)
    assert str(refused.value).startswith(said)
    assert not len(server.tools)
