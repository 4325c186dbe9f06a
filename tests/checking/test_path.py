"""The check behind real proxies: it finds a buffering nginx, and replicas that do not share sessions; right ones pass."""

import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest

from limpet.testing import Report, check
from tests.checking.faulty import Faulty
from tests.http.serving import ROOT, limpet_serve, under_uvicorn
from tests.http.test_balancer import haproxy, shipped
from tests.nginx import nginx
from tests.support import async_test


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Two processes that share their sessions; yield their ports."""
    store = f"sqlite:{tmp_path_factory.mktemp('store') / 'sessions.db'}"
    app = "tests/checking/app.py:server"
    options = ("--log-level", "error", "--store", store, "--trusted-proxies", "127.0.0.1")
    with limpet_serve(app, *options) as one, limpet_serve(app, *options) as two:
        yield one.port, two.port


def in_front(*ports: int) -> str:
    """Return deploy/nginx.conf with these replicas, without TLS."""
    config = (ROOT / "deploy" / "nginx.conf").read_text()
    servers = "".join(f"    server 127.0.0.1:{port};\n" for port in ports)
    config = re.sub(r"(?:    server 10\..*\n)+", servers, config)
    plain = re.sub(r"    ssl_.*\n", "", config).replace("listen 443 ssl;", "listen FRONT;")
    assert "ssl" not in plain
    return plain


def checked(port: int, *only: str) -> Report:
    reports: list[Report] = []

    @async_test
    async def attempt() -> None:
        reports.append(await check(f"http://127.0.0.1:{port}/mcp", only=only))

    attempt()
    return reports[0]


def test_two_replicas_behind_the_shipped_haproxy_pass_and_are_seen(replicas: tuple[int, int]) -> None:
    marked = shipped(*replicas).replace(
        "frontend public", "frontend public\n  http-response set-header x-served-by %s"
    )
    with haproxy(marked) as port:
        report = checked(port)
    assert report.passed, str(report)
    assert "2 replicas showed themselves (by x-served-by)" in report.row("replicas").happened
    assert "first bytes of a GET stream arrived" in report.row("buffering").happened


def test_two_replicas_behind_the_shipped_nginx_pass(replicas: tuple[int, int]) -> None:
    with nginx(in_front(*replicas)) as port:
        report = checked(port)
    assert report.passed, str(report)
    assert report.row("buffering").verdict == "pass"


def _buffering(config: str) -> str:
    """Return the defaults of nginx: HTTP/1.0 to the server, and buffers that are sent when they are full."""
    config = config.replace("proxy_http_version 1.1;", "proxy_ignore_headers X-Accel-Buffering;")
    return config.replace("proxy_buffering off;", "proxy_buffering on;")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_nginx_that_buffers_is_found(replicas: tuple[int, int], method: str) -> None:
    """For POST, the GET stream is not offered: the events of a call show the buffering."""
    buffering = _buffering(in_front(*replicas))
    if method == "POST":
        buffering = buffering.replace("proxy_cache off;", "if ($request_method = GET) { return 405; }")
    with nginx(buffering) as port:
        row = checked(port, "buffering").row("buffering")
    assert row.verdict == "fail", row
    said = "the head of a GET stream did not arrive" if method == "GET" else "the path holds events back"
    assert said in row.happened
    assert "proxy_buffering off" in row.remedy


@contextlib.asynccontextmanager
async def strangers() -> AsyncIterator[list[int]]:
    """Two servers that do not share their sessions; yield their ports."""
    one, two = Faulty(lambda _: None), Faulty(lambda _: None)
    async with aclosing(one), aclosing(two), under_uvicorn(one) as first, under_uvicorn(two) as second:
        yield [first, second]


@async_test
async def test_replicas_that_do_not_share_sessions_are_found() -> None:
    # The survey and `initialize` go to one replica, half of the connections to the other.
    config = """
defaults
  mode http
  timeout connect 1s
  timeout client 9s
  timeout server 9s
listen balancer
  bind FRONT"""
    async with strangers() as ports:
        servers = "".join(f"\n  server s{port} 127.0.0.1:{port}" for port in ports)
        with haproxy(f"{config}{servers}\n") as port:
            report = await check(f"http://127.0.0.1:{port}/mcp", only=["replicas"])
    row = report.row("replicas")
    assert row.verdict == "fail", row
    assert "did not find the session" in row.happened
    assert "limpet serve --store" in row.remedy
