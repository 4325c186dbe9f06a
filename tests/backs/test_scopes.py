"""Scopes for a server behind: a table by the names of its components."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from limpet import Cache, Process, Remote
from limpet.auth import Principal
from limpet.backs.proxy.back import ProxyBack
from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.scopes import ScopeTable, TableRules
from limpet.backs.shown import shown_back
from limpet.config import HttpSettings
from limpet.engine.access import Access
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.errors import ConfigError, InvalidParams, UpstreamUnavailable
from limpet.fronts.http.front import HttpFront
from limpet.ports import Ports, SystemRandom
from limpet.testing import NotingObserver
from limpet.wire.jsonrpc import Request
from tests.asgi import Call, Peer
from tests.backs.behind import Behind
from tests.messages import metadata
from tests.support import LoopClock, async_test
from tests.unit.server.post_office import (
    HIDDEN,
    LETTER,
    METADATA,
    NEEDED,
    UNKNOWN,
    Known,
    PostOffice,
    Sessionless,
    Sessions,
    as_misspelt,
    both,
)
from tests.unit.server.task_client import TASKS

TABLE = ScopeTable(
    tools={"s[a-z]nd": ["no.pattern"], "se*": ["mail.send"], "purge": ["admin"]},
    resources={"mail://*": ["mail.read"], "vault://key": ["admin"], "vault://box/*": ["admin"]},
    prompts={"draft": ["mail.send"], "plot": ["admin"]},
    hidden=["admin"],
)
eras_behind = pytest.mark.parametrize("behind", ["sessions", "sessionless"])


@asynccontextmanager
async def post_office(version: str, table: ScopeTable = TABLE) -> AsyncIterator[tuple[HttpFront, PostOffice]]:
    """Serve a server that knows nothing of scopes, with a table."""
    # Its caller is this process, which has all scopes.
    server = PostOffice(verifier=None, cache=Cache(ttl=60, scope="public"))
    clock, notes = LoopClock(), NotingObserver()
    back = ProxyBack(Behind(server, version), ProxyOptions(), Ports(clock, SystemRandom(), notes), table)
    engine = Engine(shown_back(back, None, back.is_hidden, notes), clock=clock, observer=notes)
    try:
        yield HttpFront(engine, HttpSettings(), verifier=Known()), server
    finally:
        await engine.aclose()


@both
@eras_behind
@async_test
async def test_a_missing_scope_is_refused_before_the_server_behind_hears_of_it(
    era: type[Sessions], behind: str
) -> None:
    async with post_office(behind) as (app, server):
        client = era(app)
        for method, params, scope in NEEDED:
            refused = await client.ask("none", method, params)
            assert (refused.status, refused.headers["limpet-refused"]) == (403, "not-executed")
            assert refused.headers["www-authenticate"] == (
                f'Bearer error="insufficient_scope", scope="{scope}", {METADATA}'
            )
            assert not server.ran
        for method, params, scope in NEEDED:
            assert "result" in (await client.ask(scope, method, params)).json


@both
@eras_behind
@async_test
async def test_a_hidden_component_answers_like_an_unknown_one_of_the_server_behind(
    era: type[Sessions], behind: str
) -> None:
    async with post_office(behind) as (app, server):
        client = era(app)
        for method, params, other in HIDDEN:
            hidden, unknown = [await client.ask("mail.read", method, asked) for asked in (params, other)]
            assert as_misspelt(hidden) == as_misspelt(unknown), method
        assert not server.ran
        assert (await client.ask("admin", "tools/call", {"name": "purge"})).json["result"]
        assert server.ran == ["purge"]


@both
@eras_behind
@async_test
async def test_lists_leave_out_components_hidden_from_this_caller_and_no_other(
    era: type[Sessions], behind: str
) -> None:
    async with post_office(behind) as (app, _):
        client = era(app)
        for token, templates in (
            ("none", [LETTER]),
            ("admin", [LETTER, "vault://box/{name}"]),
            ("none", [LETTER]),
        ):
            found = (await client.ask(token, "resources/templates/list", {})).json["result"]
            assert [one["uriTemplate"] for one in found["resourceTemplates"]] == templates
            assert found.get("cacheScope", "private") == "private", "users do not share it"
            tools = (await client.ask(token, "tools/list", {})).json["result"]["tools"]
            assert ("purge" in [tool["name"] for tool in tools]) is (token == "admin")


@async_test
async def test_the_scopes_of_the_whole_server_are_for_every_component_and_for_the_sign_in() -> None:
    table = ScopeTable(server=["post"], tools={"send": ["mail.send"]}, implied={"all": ["post", "mail.send"]})
    async with post_office("sessionless", table) as (app, _):
        client = Sessionless(app)
        assert 'scope="post"' in (await Peer(app).initialize()).headers["www-authenticate"]
        refused = await client.ask("none", "tools/call", {"name": "count"})
        assert 'scope="post"' in refused.headers["www-authenticate"]
        refused = await client.ask("post", "tools/call", {"name": "send"})
        assert 'scope="mail.send post"' in refused.headers["www-authenticate"]
        assert (await client.ask("all", "tools/call", {"name": "send"})).status == 200
        assert (await client.ask("none", "tools/list", {})).status == 200
        found = await Peer(app).send("GET", path="/.well-known/oauth-protected-resource").done()
        assert found.json["scopes_supported"] == ["mail.send", "post"]


OTHERS: list[tuple[str, dict[str, Any]]] = [
    *UNKNOWN,
    ("x.example/run", {"command": "rm"}),
    ("resources/directory/read", {"uri": "mail://inbox"}),
]


@both
@eras_behind
@async_test
async def test_a_request_that_reaches_the_server_behind_needs_the_scopes_of_the_server(
    era: type[Sessions], behind: str
) -> None:
    table = ScopeTable(server=["post"], tools=TABLE.tools, resources=TABLE.resources, hidden=["admin"])
    async with post_office(behind, table) as (app, server):
        client = era(app)
        for method, params in OTHERS:
            refused = await client.ask("none", method, params)
            assert (refused.status, 'scope="post"' in refused.headers["www-authenticate"]) == (403, True), (
                method,
                params,
            )
        for method, params, other in HIDDEN:
            hidden, unknown = [await client.ask("none", method, asked) for asked in (params, other)]
            assert as_misspelt(hidden) == as_misspelt(unknown), method
        assert not server.ran
        for method in ("tools/list", "resources/list", "prompts/list", "resources/templates/list"):
            assert (await client.ask("none", method, {})).status == 200


@both
@async_test
async def test_of_a_server_that_is_hidden_as_a_whole_no_request_reaches_it(era: type[Sessions]) -> None:
    async with post_office("sessions", ScopeTable(server=["admin"], hidden=["admin"])) as (app, server):
        client = era(app)
        for method, params in OTHERS:
            refused = await client.ask("none", method, params)
            assert "admin" not in str((refused.headers, refused.json)), method
        nameless = await client.ask("none", "x.example/run", {})
        assert nameless.json["error"]["code"] == -32601
        assert not server.ran


@async_test
async def test_a_listener_needs_the_scopes_of_its_resources() -> None:
    async with post_office("sessionless") as (app, server):

        def listen(token: str) -> Call:
            uris = {"resourceSubscriptions": ["mail://inbox", "vault://key"]}
            return Peer(app, token=token).sessionless("subscriptions/listen", {"notifications": uris})

        refused = await listen("none").done()
        assert (refused.status, 'scope="mail.read"' in refused.headers["www-authenticate"]) == (403, True)
        listening = await listen("mail.read").until(1)
        assert "vault://key" not in str(server.engine.listening._by_key), (
            "it is not listened to at the server"
        )
        await listening.cut()


@pytest.mark.parametrize(("table", "status"), [(TABLE, 404), (ScopeTable(server=["post"]), 200)])
@async_test
async def test_tasks_do_not_pass_where_tools_need_scopes(table: ScopeTable, status: int) -> None:
    async with post_office("sessionless", table) as (app, _):
        meta = metadata(capabilities={"extensions": {TASKS: {}}})

        async def ask(method: str, **params: Any) -> Call:
            return await Peer(app, token="mail.send+post").sessionless(method, params, meta=meta).done()

        found = (await ask("server/discover")).json["result"]["capabilities"]
        assert (TASKS in found["extensions"]) is (status == 200)
        result = (await ask("tools/call", name="bulk")).json["result"]
        assert ("taskId" in result) is (status == 200)
        assert (await ask("tasks/get", taskId=result.get("taskId", "x"))).status == status
        if status == 200:
            refused = (
                await Peer(app, token="none").sessionless("tasks/get", {"taskId": "x"}, meta=meta).done()
            )
            assert refused.status == 403, "the scopes of the server are for its tasks too"


@pytest.mark.parametrize(
    "uri",
    [
        "vault://key",
        "VAULT://KEY",
        "vault:///key",
        "vault:\\\\key",
        "vault%3A//key",
        "vault://%6b%65%79",
        "vault://%256bey",
        "vault://key/",
        "vault://key?x=1",
        "vault://key#x",
        "vault://box/../key",
        "vault://box%3f/../key",
        "vault://box%23/../key?x=1",
        "vault://box%253f/../key#x",
        "vault://user@key",
        "vault://user:word@key/",
        "\uff56ault://\uff4bey",
        "url:vault://key",
        "<URL:vault://key>",
    ],
)
def test_a_uri_needs_its_scope_in_every_spelling(uri: str) -> None:
    rules = TableRules(ScopeTable(resources={"vault://key": ["admin"]}), Access())
    needs = rules.needs(Request(1, "resources/read", {"uri": uri}), Caller(""), "")
    assert needs.scopes == {"admin"}
    assert not rules.component("resources", "vault://other").scopes


INTERNAL = "https://internal.example/*"
SAME_HOST = [
    "https://internal.example/",
    "https://internal.example/a",
    "https://internal.example",
    "https://internal.example?a",
    "https://internal.example#a",
    "https://internal.example/?a",
    "HTTPS://INTERNAL.EXAMPLE/a",
    "https://internal.example:443/a",
    "https://internal.example:443",
    "https://internal.example:0443/a",
    "https://internal.example:/a",
    "https://internal.example%3A443/a",
    "https://user@internal.example/a",
    "https://user:word@internal.example/a",
    "https://@internal.example/a",
    "https://user%40internal.example/a",
    "https://other.example%40internal.example/a",
    "https://user:word@internal.example.:443/a",
    "https://internal.example./a",
    "https://internal.example.",
    "https://internal%2Eexample/a",
    "https://internal%252Eexample/a",
    "https://%69nternal.example/a",
    "https://internal.example%2Fa",
    "https://internal.example%3Fa",
    "https://internal\u3002example/a",
    "https://internal\uff0eexample/a",
    "https://internal\uff61example/a",
    "https://\uff49\uff4e\uff54\uff45\uff52\uff4e\uff41\uff4c.example/a",
    "https://\u24d8nternal.example/a",
    "https://internal.ex\u00adample/a",
    "https://%EF%BD%89nternal.example/a",
    "\uff48ttps://internal.example/a",
    "https\uff1a//internal.example/a",
    "https:/internal.example/a",
    "https:internal.example/a",
    "https:///internal.example/a",
    "https:////internal.example//a",
    "https:\\\\internal.example\\a",
    "https:/\\internal.example/a",
    "https://internal.example\\a",
    "https://internal.example/../a",
    "https://internal.example/x/../../a",
    "https://internal.example/%2e%2e/a",
    "https://internal.example/a;b=c",
    "url:https://internal.example/a",
    "URL:https://internal.example:443/a",
    "<URL:https://internal.example/a>",
]
"""Spellings of one host, which servers accept; each of them needs the scope of the row."""
NO_HOST = [
    "https://internal.example\uff0fa",
    "https:\uff0f\uff0finternal.example/a",
    "https://internal.example\t/a",
    "https://internal\n.example/a",
    "ht\ntps://internal.example/a",
    " https://internal.example/a",
    "https://internal.example/a ",
    "\u00a0https://internal.example/a",
    "https://internal.example/%00a",
    "https://internal.example%0a/a",
    "https://internal.example/\u2028a",
    "https://internal.example:https/a",
    "https://internal.example:65536/a",
    "https://internal.example:443:443/a",
    "https://internal.example:\u0664\u0664\u0663/a",
    "https://a@b@internal.example/a",
    "https://internal.example@other.example@x/a",
    "https://internal.example../a",
    "https://internal..example/a",
    "https://.internal.example/a",
    "https://xn--internal-.example/a",
    "https://internal.ex\u200dample/a",
    "https://stra\u00dfe.example/a",
    "https://internal.example;x/a",
    "https://internal_ex ample/a",
    "https://[internal.example]/a",
    "https://[::1/a",
    "https://[::1]x/a",
    "https:///",
    "https://",
    "https:",
    "//internal.example/a",
    "\\\\internal.example\\a",
    "https://%2525252569nternal.example/a",
    "http://010.0.0.1/",
    "http://1.2.3.4.5/",
    "http://99999999999/",
    "https://internal.example/" + "\ufdfa" * 50,
    "https://" + "a" * 5_000 + "/a",
]
"""URIs that programs read differently, or that no server has."""
OTHER_HOSTS = [
    "https://other.example/a",
    "https://internal.example.other.example/a",
    "https://notinternal.example/a",
    "https://internal.example:8443/a",
    "http://internal.example/a",
    "https://other.example/internal.example/a",
    "https://xn--strae-oqa.example/a",
    "mail://internal.example/a",
    "mailto:a@internal.example",
    "urn:isbn:0451450523",
    "file:///docs/what\uff1f.txt",
    "data:text/plain,https",
    "notes",
]


def needed(rules: TableRules, uri: str) -> frozenset[str]:
    return rules.needs(Request(1, "resources/read", {"uri": uri}), Caller(""), "").scopes


@pytest.mark.parametrize("row", [INTERNAL, "HTTPS://Internal.Example:443/*", "http*://internal.example/*"])
def test_a_host_needs_its_scope_in_every_spelling(row: str) -> None:
    rules = TableRules(ScopeTable(resources={row: ["staff"]}), Access())
    assert [uri for uri in SAME_HOST if needed(rules, uri) != {"staff"}] == []


@pytest.mark.parametrize("uri", NO_HOST, ids=ascii)
def test_a_uri_without_a_canonical_form_is_refused(uri: str) -> None:
    rules = TableRules(ScopeTable(resources={INTERNAL: ["staff"]}), Access())
    for method, params in (
        ("resources/read", {"uri": uri}),
        ("resources/subscribe", {"uri": uri}),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a://b", uri]}}),
    ):
        with pytest.raises(InvalidParams, match="canonical form"):
            rules.needs(Request(1, method, params), Caller(""), "")
    # In a list nothing can be refused.
    assert rules.component("resources", uri).scopes == {"staff"}
    # Where no row is compared with URIs, each of them passes.
    assert not needed(TableRules(ScopeTable(tools={"a": ["staff"]}), Access()), uri)


def test_other_hosts_need_no_scope() -> None:
    rules = TableRules(ScopeTable(resources={INTERNAL: ["staff"]}), Access())
    assert [uri for uri in OTHER_HOSTS if needed(rules, uri)] == []


@pytest.mark.parametrize(
    ("row", "uris"),
    [
        (
            "http://10.0.0.1/*",
            ["http://0x0a000001/a", "http://167772161/", "http://10.1/", "http://10.0.1/", "http://0xA.0.0.1:80/",
             "http://[::ffff:10.0.0.1]/", "http://[::FFFF:A00:1]:80/", "http://10.0.0.1.", "http://\uff11\uff10.1"],
        ),
        (
            "http://localhost:8080/*",
            ["http://127.0.0.1:8080/", "http://[::1]:8080/a", "http://127.1:8080/", "http://LOCALHOST.:8080/",
             "http://0.0.0.0:8080/", "http://2130706433:08080/", "http://a.localhost:8080/"],
        ),
        ("https://[2001:db8::1]/*", ["https://[2001:DB8:0:0:0:0:0:1]:443/a", "https://[2001:0db8::0001]"]),
        ("https://b\u00fccher.example/*", ["https://xn--bcher-kva.example/", "https://B\u00dcCHER.example", "https://bu\u0308cher.example/a"]),
        ("https://xn--bcher-kva.example/*", ["https://b\u00fccher.example./a"]),
        ("https://*.internal.example/*", ["https://A.Internal.Example:443/a", "https://a.internal.example."]),
        ("https://internal.example:*/*", ["https://internal.example:8443/a"]),
        ("https://*", ["https://internal.example", "https:internal.example"]),
        ("https://internal.example", ["https://internal.example:443/", "https://internal.example?a"]),
        ("ws://internal.example/*", ["ws://internal.example:80", "WS:internal.example"]),
    ],
)  # fmt: skip
def test_a_row_fits_all_spellings_of_its_host(row: str, uris: list[str]) -> None:
    rules = TableRules(ScopeTable(resources={row: ["staff"]}), Access())
    assert [uri for uri in uris if needed(rules, uri) != {"staff"}] == []
    assert not needed(rules, "https://other.test/x") or row == "https://*"


@pytest.mark.parametrize(
    "row", ["https://stra\u00dfe.example/*", "https://a..b/*", "https://a:x/*", "http://010.0.0.1/"]
)
def test_a_row_whose_host_programs_read_differently_is_refused(row: str) -> None:
    with pytest.raises(ConfigError, match="programs read differently"):
        ScopeTable(resources={row: ["staff"]})


def test_a_completion_for_a_template_is_not_refused() -> None:
    rules = TableRules(ScopeTable(resources={INTERNAL: ["staff"]}), Access())
    for uri, scopes in (("https://{host}/a", {"staff"}), ("https://other.example/{a}", set())):
        params = {"ref": {"type": "ref/resource", "uri": uri}}
        assert rules.needs(Request(1, "completion/complete", params), Caller(""), "").scopes == scopes


def test_a_file_of_this_machine_needs_its_scope_with_and_without_the_name_of_the_machine() -> None:
    rules = TableRules(ScopeTable(resources={"file:///secret/*": ["admin"]}), Access())
    for uri in (
        "file:///secret/x",
        "file://localhost/secret/x",
        "file://LOCALHOST/box/../secret/x",
        "file://localhost./secret/x",
        "file://127.0.0.1/secret/x",
        "file://[::1]/secret/x",
        "file:/secret/x",
        "file:////secret//x",
        "file:///secret",
        "url:file:///secret/x",
    ):
        assert rules.component("resources", uri).scopes == {"admin"}
    assert not rules.component("resources", "file://localhosts/secret/x").scopes


@pytest.mark.parametrize(
    ("row", "fitting", "others"),
    [
        ("send", ["send"], ["sen", "send1", "", "SEND"]),
        ("*", ["", "x"], []),
        ("a*a", ["aa", "aba"], ["a", "ab", "ba"]),
        ("*mail*delete*", ["mail_delete", "a mail delete b", "maildelete"], ["delete_mail", "maildelet"]),
        ("a*bc*c", ["abcc", "axbcxbcc"], ["abc", "acbc"]),
        ("a.*", ["a.b"], ["ab"]),
    ],
)
def test_a_row_with_stars_fits_any_characters_between(
    row: str, fitting: list[str], others: list[str]
) -> None:
    rules = TableRules(ScopeTable(tools={row: ["a"]}), Access())
    assert all(rules.component("tools", name).scopes for name in fitting)
    assert not any(rules.component("tools", name).scopes for name in others)


def test_a_long_name_does_not_take_the_time_of_other_clients() -> None:
    rules = TableRules(ScopeTable(tools={"*a*b*c*d": ["x"]}, resources={"a*b*c": ["x"]}), Access())
    assert not rules.component("tools", "abc" * 300_000).scopes
    request = Request(1, "resources/read", {"uri": "%25" * 30_000})
    with pytest.raises(InvalidParams, match="at most 65536 characters"):
        rules.needs(request, Caller(""), "")


def test_a_row_may_itself_be_written_in_another_spelling() -> None:
    for row in ("Vault://KEY", "vault://k%65y/", "vault://*", "*", "*key"):
        assert (
            TableRules(ScopeTable(resources={row: ["a"]}), Access())
            .component("resources", "vault://key")
            .scopes
        )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"tools": {"send": []}}, "at least one scope"),
        ({"tools": {"": ["a"]}}, "needs a name"),
        ({"tools": {"send": "a"}}, r"tools\['send'\] is a set of texts, not one text"),
        ({"prompts": {"x": ["a b"]}}, "'a b' is not a scope"),
        ({"hidden": ["a"]}, "hidden names 'a', which no row"),
        ({"implied": {"a": ["b c"]}}, "'b c' is not a scope"),
    ],
)
def test_a_table_that_cannot_work_is_refused(table: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ScopeTable(**table)


def test_a_table_needs_a_verifier_that_reads_scopes() -> None:
    table = ScopeTable(server=["a"])
    for server in (
        Process(["true"], scopes=table),
        Remote("http://localhost:1/mcp", scopes=table),
        Remote("http://localhost:1/mcp", scopes=table, pass_token=True),
    ):
        with pytest.raises(ConfigError, match="no verifier that reads the scopes"):
            server.front(HttpSettings())
    Process(["true"], scopes=table, verifier=Known()).front(HttpSettings())


@async_test
async def test_an_error_that_does_not_name_the_component_is_not_changed() -> None:
    access = TABLE.access()
    assert isinstance(access.rules, TableRules)
    away = UpstreamUnavailable("Busy: the server behind this one cannot be reached")

    async def handle(_exchange: Exchange) -> bytes:
        raise away

    back: Any = SimpleNamespace(handle=handle, access=access)
    shown = shown_back(back, None, access.rules.is_hidden, NotingObserver())
    ada = Principal(subject="ada")
    request = Request(1, "tools/call", {"name": "purge"})
    exchange: Any = SimpleNamespace(inner=request, caller=Caller(ada.key, ada))
    with pytest.raises(UpstreamUnavailable) as raised:
        await shown.handle(exchange)
    assert raised.value is away


def test_another_process_knows_the_mark_of_a_call_for_which_several_rows_add_up() -> None:
    table = ScopeTable(tools={"git_*": ["git"], "*_write": ["write"], "*_all": ["all"], "git_x": ["x"]})
    here, there = table.access(), table.access()
    ada = Principal(subject="ada", scopes=frozenset({"git", "write", "all"}))
    caller = Caller(ada.key, ada)
    for name in ("git_all", "git_write", "git_read", "x_write"):
        needs = here.judge(Request(1, "tools/call", {"name": name}), caller)
        assert needs is not None
        assert there.marked(f"stream{here.mark(needs.scopes)}", caller) == needs.scopes
    assert there.marked(f"stream{here.mark(frozenset({'git', 'other'}))}", caller) is None


def test_the_scopes_that_many_rows_add_up_to_are_bounded() -> None:
    table = ScopeTable(tools={f"{number}*": [f"scope{number}"] for number in range(40)})
    access = table.access()
    ada = Principal(subject="ada", scopes=frozenset({"scope1", "scope2"}))
    both = table.access().mark(frozenset({"scope1", "scope2"}))
    assert access.marked(f"stream{both}", Caller(ada.key, ada)) == ada.scopes
    assert len(access._marks) < 2_000
