"""`Remote`, `Process` and their command lines: which values they pass on, keep and refuse."""

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiohttp import web

from limpet import Client, ConfigError, Limits, McpError, Process, Remote, Settings
from limpet.backs.environment import variables
from limpet.config import HttpSettings
from limpet.errors import BUSY, OUTCOME_UNKNOWN
from limpet.options import ProxyOptions
from limpet.ports import Ports, SilentObserver, SystemRandom
from limpet.server import process
from limpet.testing import NotingObserver, VirtualClock
from limpet.transports.child import ChildOptions
from limpet.upstream.connectors import ChildConnector
from limpet.upstream.settings import ClientTimes
from tests.asgi import Peer
from tests.command_line import run
from tests.messages import request
from tests.support import async_test, until
from tests.workers.fleet import SHOP
from tools.ports import free_port

LITTLE: Final = [sys.executable, str(Path(__file__).parent / "little.py")]
ODD: Final = [sys.executable, str(Path(__file__).parent / "odd.py")]
URL: Final = "https://example.test/mcp"


class Bare:
    """A server of 2025-11-25 that answers in JSON, keeps no stream, and remembers the headers it received."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.moves_to = ""

    async def __aenter__(self) -> str:
        application = web.Application()
        application.router.add_post("/mcp", self._post)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        port = free_port()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        return f"http://127.0.0.1:{port}/mcp"

    async def __aexit__(self, *_error: object) -> None:
        await self._runner.cleanup()

    async def _post(self, asked: web.Request) -> web.Response:
        self.headers.append({name.lower(): value for name, value in asked.headers.items()})
        if self.moves_to:
            return web.Response(status=307, headers={"location": self.moves_to})
        message = await asked.json()
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bare", "version": "1"},
            }
        elif message["method"] == "tools/list":
            result = {"tools": []}
        else:
            error = {"code": -32601, "message": "unknown"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@async_test
async def test_only_configured_headers_and_our_own_token_reach_the_server_behind_a_url() -> None:
    bare = Bare()
    async with bare as url:
        remote = Remote(url, headers={"X-Team": "red"}, token="ours")
        peer = Peer(remote.asgi(), token="the-clients-own")
        await peer.initialize()
        secret = {"cookie": "a=b", "x-secret": "no"}
        listed = await peer.post(request(1, "tools/list", {}), headers=secret).done()
        assert listed.json["result"] == {"tools": []}
        await remote.engine.aclose()
        assert bare.headers
        for sent in bare.headers:
            assert sent["authorization"] == "Bearer ours"
            assert sent["x-team"] == "red"
            assert not {"cookie", "x-secret"} & sent.keys()
            assert "the-clients-own" not in str(sent)


@async_test
async def test_a_server_that_repeats_our_credentials_in_a_refusal_does_not_show_them_to_clients() -> None:
    async def repeat(asked: web.Request) -> web.Response:
        return web.Response(
            status=400, text=f"invalid: {asked.headers['authorization']} {asked.query_string}"
        )

    application = web.Application()
    application.router.add_post("/mcp", repeat)
    runner = web.AppRunner(application)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    remote = Remote(f"http://127.0.0.1:{port}/mcp?key=query-secret", token="token-secret")
    with pytest.raises(McpError, match=r"invalid: \[hidden\] key=\[hidden\]"):
        async with Client(remote, protocol_version="sessions"):
            raise AssertionError("it refuses every request")
    await runner.cleanup()


@async_test
async def test_a_redirect_to_another_origin_is_refused() -> None:
    bare, other = Bare(), Bare()
    async with bare as url, other as elsewhere:
        bare.moves_to = elsewhere
        with pytest.raises(McpError, match="redirects to"):
            async with Client(Remote(url), protocol_version="sessions"):
                raise AssertionError("the redirect was followed")
        assert not other.headers


@async_test
async def test_a_url_that_no_server_answers_is_busy_and_leaves_no_session() -> None:
    remote = Remote(f"http://user:secret@127.0.0.1:{free_port()}/mcp?key=secret")
    with pytest.raises(McpError, match="nothing was executed") as failed:
        async with Client(remote, protocol_version="sessions"):
            raise AssertionError("there is no server")
    assert failed.value.code == BUSY
    assert "secret" not in str(failed.value), "clients do not receive our credentials"


@async_test
async def test_a_program_that_cannot_start_is_an_error_with_its_stderr() -> None:
    broken = [sys.executable, "-c", "import sys; sys.exit('no licence')"]
    notes = NotingObserver()
    with pytest.raises(McpError, match="no licence"):
        async with Client(Process(broken, observer=notes), protocol_version="sessions"):
            raise AssertionError("the program does not speak")
    assert "no licence" in {facts["line"] for facts in notes.named("upstream.stderr")}


DEATHS = [
    "import sys; sys.exit('no licence')",
    "import sys; print('no licence', file=sys.stderr, flush=True); sys.stdin.readline(); sys.exit(3)",
    "import sys; print('no licence', file=sys.stderr, flush=True); print('{}', flush=True); sys.stdin.close()",
]
"""Programs that end before they read, after their first line, and without reading."""


@pytest.mark.parametrize("program", DEATHS)
@pytest.mark.parametrize("version", ["sessions", "sessionless"])
@async_test
async def test_with_masked_errors_the_stderr_of_a_program_is_only_in_the_log(
    program: str, version: str
) -> None:
    notes = NotingObserver()
    command = [sys.executable, "-c", program]
    masked = Process(command, observer=notes, settings=Settings(mask_errors=True))
    with pytest.raises(McpError) as failed:
        async with Client(masked, protocol_version=version) as client:
            await client.list_tools()
    told = f"{failed.value.message} {failed.value.data}"
    assert not any(word in told for word in ("licence", "status", "exit", "python")), told
    await until(lambda: "no licence" in {facts["line"] for facts in notes.named("upstream.stderr")})


@pytest.mark.parametrize("mask_errors", [False, True])
@async_test
async def test_errors_of_a_child_quote_its_stderr_unless_errors_are_masked(
    mask_errors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []
    monkeypatch.setattr(
        process, "PausingConnector", lambda _command, options, *_: given.append(options.quotes_stderr)
    )
    program, settings = Process(LITTLE), Settings(mask_errors=mask_errors)
    program.check_settings(settings)
    target = program._target
    await target.start(Ports(VirtualClock(), SystemRandom(), SilentObserver()), lambda _: None)
    client: Any = SimpleNamespace(caller=None)
    target.connector(client)
    assert given == [not mask_errors]


@pytest.mark.parametrize("version", ["sessions", "sessionless"])
@async_test
async def test_with_masked_errors_the_address_of_a_server_behind_is_only_in_the_log(version: str) -> None:
    notes, port = NotingObserver(), free_port()
    masked = Remote(f"http://127.0.0.1:{port}/mcp", observer=notes, settings=Settings(mask_errors=True))
    with pytest.raises(McpError) as failed:
        async with Client(masked, protocol_version=version) as client:
            await client.list_tools()
    told = f"{failed.value.message} {failed.value.data}"
    assert str(port) not in told
    assert "127.0.0.1" not in told
    assert "correlation" in told
    logged = [*notes.named("session.unserved"), *notes.named("call.unserved")]
    assert str(port) in str(logged), "an operator finds it by the correlation id"


@async_test
async def test_a_child_gets_its_variables_and_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPET_STORE", "redis://secret")
    monkeypatch.setenv("MY_SECRET", "secret")
    show = "import os, sys; sys.exit(' '.join(sorted(os.environ)))"
    with pytest.raises(McpError) as failed:
        async with Client(
            Process([sys.executable, "-c", show], env={"WANTED": "1"}), protocol_version="sessions"
        ):
            raise AssertionError("the program does not speak")
    assert "WANTED" in failed.value.message
    assert "SECRET" not in failed.value.message
    assert "LIMPET" not in failed.value.message


@async_test
async def test_each_session_has_a_child_with_the_values_of_its_own_client() -> None:
    process = Process(ODD, env=variables({"KEY": "header:X-Key", "FIXED": "header"}))
    assert process._target.needs_credentials
    app = process.asgi()
    async with aclosing(process.engine):
        for number in range(2):
            peer = Peer(app)
            await peer.initialize(headers={"x-key": f"secret-{number}"})
            asked = {"name": "env", "arguments": {"names": ["KEY", "FIXED"]}}
            # The values are those of the request that opened the session.
            said = await peer.post(request(1, "tools/call", asked), headers={"x-key": "other"}).done()
            found = json.loads(said.json["result"]["content"][0]["text"])
            assert found == {"KEY": f"secret-{number}", "FIXED": "header"}
        refused = await Peer(app).initialize()
        assert "needs the header X-Key" in refused.json["error"]["message"]
        assert len(process.back._upstreams) == 2


@async_test
async def test_a_session_over_the_limit_of_children_is_refused_with_503() -> None:
    process = Process(ODD, children=1)
    app = process.asgi()
    async with aclosing(process.engine):
        await Peer(app).initialize()
        refused = await Peer(app).initialize()
        assert (refused.status, refused.json["error"]["code"]) == (503, BUSY)
        assert int(refused.headers["retry-after"]) > 0


def test_different_servers_have_different_namespaces_that_show_no_argument() -> None:
    made = [
        Process(["npx", "-y", "one", "--key=s3cret"]),
        Process(["npx", "-y", "two"]),
        Remote("https://h.example/a?key=s3cret"),
        Remote("https://h.example/b"),
    ]
    names = [server.namespace for server in made]
    assert len(set(names)) == len(names)
    assert not any("s3cret" in name or "one" in name for name in names)
    assert Process(["npx", "-y", "two"]).namespace == names[1], "the replicas of one server agree"
    assert Process(["npx"], namespace="mine").namespace == "mine"


@async_test
async def test_a_server_that_cannot_be_reached_is_a_503_that_executed_nothing() -> None:
    observer = NotingObserver()
    remote = Remote("http://127.0.0.1:1/mcp", observer=observer)
    async with aclosing(remote.engine):
        refused = await Peer(remote.asgi()).initialize()
        assert (refused.status, refused.json["error"]["code"]) == (503, BUSY)
        assert refused.headers["limpet-refused"] == "not-executed"
        assert observer.named("upstream.unreachable"), "the operator reads it in the log"


@pytest.mark.parametrize("name", ["LIMPET_STORE", "limpet_x", "", "A=B", "A\0"])
def test_an_invalid_variable_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        Process(["program"], env={name: "1"})


@async_test
async def test_a_child_that_ends_at_once_is_started_again_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def no_link(_self: object, _receiver: object) -> None:
        """Start nothing."""

    monkeypatch.setattr(process, "asyncio", SimpleNamespace(sleep=pause))
    monkeypatch.setattr(ChildConnector, "connect", no_link)
    clock = VirtualClock()
    ports = Ports(clock, SystemRandom(), SilentObserver())
    connector = process.PausingConnector(LITTLE, ChildOptions(), ClientTimes(backoff=(1.0, 60.0)), ports)
    nobody: Any = None
    for _ in range(5):
        await connector.connect(nobody)
    assert len(pauses) == 4
    assert pauses == sorted(pauses)
    assert pauses[3] >= 4
    clock.advance(process.STEADY_SECONDS + 1)
    await connector.connect(nobody)
    assert len(pauses) == 4


@pytest.mark.parametrize("url", ["ftp://x/mcp", "example.com", "http://", "http://host:0/"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="http:// or https://"):
        Remote(url)


def test_a_header_that_cannot_be_sent_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="line break"):
        Remote(URL, headers={"X-Team": "red\r\nX-Other: 1"})


def test_stateless_mode_and_unknown_options_are_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="cannot be stateless"):
        _ = Process(LITTLE, settings=Settings(stateless=True)).engine
    with pytest.raises(ConfigError, match="protocol version is one of"):
        Remote(URL, protocol_version="2020-01-01")
    with pytest.raises(TypeError, match="did you mean 'concurrency'"):
        Remote(URL, concurency=1)  # type: ignore[call-arg]
    assert Remote(URL, concurrency=3, strict=True).options == ProxyOptions(concurrency=3, strict=True)
    assert Process(LITTLE, children=5, options=ProxyOptions(queued=7)).options == ProxyOptions(
        queued=7, upstreams=5
    )


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        (HttpSettings(), True),
        (HttpSettings(allow_anonymous=True), False),
        (HttpSettings(allowed_hosts=("mcp.example.com",)), False),
    ],
)
def test_anonymous_clients_share_an_upstream_only_if_no_other_machine_may_call(
    settings: HttpSettings, shares: bool
) -> None:
    remote = Remote(URL)
    remote.front(settings)
    assert remote.back.shares_anonymous is shares


def test_what_is_shown_of_a_target_holds_no_secret() -> None:
    with_password = URL.replace("//", "//user:secret@")
    remote, child = (
        Remote(f"{with_password}?key=secret"),
        Process(["npx", "-y", "some-server", "--key=secret"]),
    )
    for shown in (remote.summary, child.summary, repr(remote), repr(child), remote.name, child.name):
        assert "secret" not in shown
    assert remote.summary == f"in front of {URL}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "the target is missing"),
        (("--",), "-- needs a command after it"),
        ((URL, "--", "npx"), "one target"),
        ((URL, "--env", "A=1"), "--env does not fit a URL"),
        ((URL, "--header", "nonsense"), "--header takes NAME=VALUE"),
        ((URL, "--token-file", "/nowhere"), "cannot be read"),
        ((URL, "--upstream-version", "1999"), "protocol version is one of"),
        (("--header", "A=1", "--", "npx"), "--header does not fit a command"),
        (("--stdio", "--env", "LIMPET_STORE=1", "--", "npx"), "variable of Limpet itself"),
        ((SHOP, "--strict"), "--strict is for a server in front of another one"),
        (("--env", "PATH=header:X", "--", "npx"), "PATH cannot come from a client"),
        (("--env", "KEY=claim:", "--", "npx"), "KEY needs the name of a header or a claim"),
        (("--shared-between", "ada", "--", "npx"), "needs shared=True"),
        ((URL, "--shared"), "--shared does not fit a URL"),
        ((SHOP, "--home", "any"), "--home is for a server in front of another one"),
        ((URL, "--home", "any", "--strict"), "strict does not fit"),
        ((URL, "--forward-key-file", "/nowhere"), "--forward-key-file /nowhere cannot be read"),
        ((URL, "--forward-key-file", SHOP), "openssl rand -base64 32"),
    ],
)
def test_a_command_line_that_cannot_work_says_why(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another program may use the default port.
    monkeypatch.setenv("LIMPET_HTTP", "127.0.0.1:0")
    refused = run("serve", *arguments)
    assert refused.status == 2, refused.err
    assert said in refused.err
    assert "Traceback" not in refused.err


@async_test
async def test_a_command_is_served_over_stdio_with_its_own_options() -> None:
    command = [sys.executable, "-m", "limpet", "serve", "--stdio", "--", *LITTLE]
    async with Client(command, protocol_version="sessions") as client:
        assert client.agreed.server["name"] == "little"


HALVES: Final = """
import json, sys
held = b""
for line in sys.stdin.buffer:
    message = json.loads(line)
    if message.get("method") == "initialize":
        server = {"name": "halves", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
    elif message.get("method") != "tools/call":
        continue
    else:
        result = {"content": [], "text": "x" * message["params"]["arguments"]["size"]}
    answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\\n"
    half = len(answer) // 2 if len(answer) > 1_000 else len(answer)
    sys.stdout.buffer.write(held + answer[:half])
    sys.stdout.buffer.flush()
    if message.get("method") == "tools/call" and message["params"]["arguments"].get("dies"):
        sys.exit(1)
    held = answer[half:]
"""
"""It sends the second half of a long answer before its next answer."""


@pytest.mark.parametrize(("memory", "is_dropped"), [(32, False), (3, True)])
@async_test
async def test_an_answer_of_a_program_is_in_the_memory_of_its_client_while_it_is_read(
    memory: int, is_dropped: bool
) -> None:
    program = Process([sys.executable, "-c", HALVES], settings=Settings(limits=Limits(memory=memory * 2**20)))
    ledger = program.engine.load.ledger
    async with Client(program, protocol_version="sessions") as client:
        first = asyncio.create_task(client.call_tool("a", {"size": 4_000_000}))
        # If it is dropped, nothing of it stays.
        await until(lambda: is_dropped or ledger.used > 1_000_000)
        while not first.done():
            assert (await client.call_tool("a", {"size": 1})).content == []
        if is_dropped:
            with pytest.raises(McpError, match="answer was dropped") as dropped:
                await first
            assert dropped.value.code == OUTCOME_UNKNOWN
        else:
            await first
        await until(lambda: ledger.used < 1_000_000)


@async_test
async def test_half_a_message_of_a_program_that_dies_is_in_no_memory() -> None:
    program = Process([sys.executable, "-c", HALVES])
    ledger = program.engine.load.ledger
    async with Client(program, protocol_version="sessions") as client:
        with pytest.raises(McpError) as died:
            await client.call_tool("a", {"size": 4_000_000, "dies": True})
        assert died.value.code == OUTCOME_UNKNOWN
        await until(lambda: ledger.used < 1_000_000)


ASKER: Final = """
import json, sys
for line in sys.stdin.buffer:
    message = json.loads(line)
    if message.get("method") == "initialize":
        server = {"name": "asker", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif message.get("method") == "tools/call":
        call = message["id"]
        asked = {"messages": [], "maxTokens": 1, "systemPrompt": "x" * 12_000}
        for number in range(600):
            request = {"jsonrpc": "2.0", "id": f"q{number}", "method": "sampling/createMessage", "params": asked}
            print(json.dumps(request), flush=True)
    elif message.get("id") == "q0":
        print(json.dumps({"jsonrpc": "2.0", "id": call, "result": {"content": []}}), flush=True)
"""
"""It asks 600 questions during a call, and ends the call when the first one is answered."""


@async_test
async def test_questions_of_a_program_are_in_the_memory_of_its_client_and_refused_beyond_it() -> None:
    program = Process([sys.executable, "-c", ASKER], settings=Settings(limits=Limits(memory=16 * 2**20)))
    ledger, asked, may_answer = program.engine.load.ledger, 0, asyncio.Event()

    async def sample(_params: object) -> Any:
        nonlocal asked
        asked += 1
        await may_answer.wait()
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "yes"}}

    async with Client(program, protocol_version="sessions", sampling=sample) as client:
        call = asyncio.create_task(client.call_tool("a"))
        await until(lambda: asked > 0 and ledger.used > 4_000_000)
        may_answer.set()
        await call
    await until(lambda: ledger.used < 1_000_000)
