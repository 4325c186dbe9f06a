"""POSTs of 2026-07-28: their metadata, their headers, notifications, arrays, and what only sessions have."""

from typing import Any

import pytest

from limpet.config import Settings
from tests.messages import MODERN, PREFIX, metadata, notification, request
from tests.unit.fronts.http.bench import bench, front_test

CALL: dict[str, Any] = {"name": "quick"}


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
@front_test
async def test_missing_metadata_is_400(missing: str) -> None:
    async with bench(Settings(eras="sessionless")) as b:
        meta = metadata()
        del meta[f"{PREFIX}{missing}"]
        refused = await b.peer().sessionless("tools/call", CALL, meta=meta).done()
        assert (refused.status, refused.json["error"]["code"], refused.json["id"]) == (400, -32602, 1)
        assert missing in refused.json["error"]["message"]
        assert b.runs == []


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("mcp-protocol-version", None),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", None),
        ("mcp-method", "tools/list"),
        ("mcp-method", "Tools/Call"),
        ("mcp-name", None),
        ("mcp-name", "held"),
    ],
)
@front_test
async def test_a_request_whose_headers_differ_from_its_body_gets_400(header: str, value: str | None) -> None:
    async with bench() as b:
        refused = await b.peer().sessionless("tools/call", CALL, headers={header: value}).done()
        assert (refused.status, refused.json["error"]["code"], refused.json["id"]) == (400, -32020, 1)
        assert b.runs == []


@front_test
async def test_an_array_is_refused_without_a_session_too() -> None:
    async with bench() as b:
        one = request(1, "tools/call", {"_meta": metadata(), **CALL})
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "quick"}
        for body in ([one], [one, one], []):
            refused = await b.peer().post(body, headers=headers).done()
            assert (refused.status, refused.json["error"]["code"]) == (400, -32600)
        assert b.runs == []


@front_test
async def test_a_notification_without_a_session_gets_202() -> None:
    async with bench() as b:
        headers = {"mcp-protocol-version": MODERN}
        sent = notification("notifications/cancelled", {"requestId": 1, "_meta": metadata()})
        taken = await b.peer().post(sent, headers=headers).done()
        assert (taken.status, taken.body) == (202, b"")


@front_test
async def test_a_notification_that_cannot_be_taken_gets_400() -> None:
    async with bench() as b:
        headers = {"mcp-protocol-version": MODERN, "idempotency-key": "x" * 10_000}
        sent = notification("notifications/cancelled", {"requestId": 1})
        refused = await b.peer().post(sent, headers=headers).done()
        assert refused.status == 400
        assert "id" not in refused.json


@front_test
async def test_a_server_without_sessions_ignores_what_sessions_have() -> None:
    async with bench(Settings(eras="sessionless")) as b:
        p = b.peer()
        assert (await p.get().done()).status == 405
        assert (await p.delete()).status == 405
        headers = {"mcp-session-id": "0" * 64, "last-event-id": "a.1.b"}
        served = await p.sessionless("tools/call", CALL, headers=headers).done()
        assert (served.status, served.json["result"]["tool"]) == (200, "quick")
        assert "mcp-session-id" not in served.headers
