"""The examples under deploy/: they can be read, use only options that exist, and give the process the time it needs."""

import asyncio
import configparser
import contextlib
import http.client
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
import yaml

from limpet.auth.urls import RESOURCE
from limpet.cli.whole import app
from limpet.cli.worker import MARGIN
from limpet.config import Limits
from limpet.fronts.http.decide.health import LIVE, READY
from limpet.stores.postgres_address import parse
from limpet.stores.urls import SCHEMES
from tests.http.client import Client, http_test
from tests.http.serving import wait_until_connected
from tests.programs import program
from tests.support import BOUND, until, wait_until
from tests.workers.fleet import fleet
from tools.ports import free_port

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
SMALL: Final = Path(__file__).parents[1] / "unit" / "fronts" / "fixtures" / "small.py"
"""A server without a verifier."""


def objects() -> dict[tuple[str, str], Any]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return services


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = objects()["Deployment", "mcp"]["spec"]["template"]["spec"]
    return spec


def image() -> str:
    return (DEPLOY.parent / "Dockerfile").read_text()


def image_words(instruction: str) -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text()
    (found,) = re.findall(rf"^{instruction} (\[.*\])$", text, re.MULTILINE)
    words: list[str] = yaml.safe_load(found)
    return words


def unit(name: str) -> configparser.ConfigParser:
    """Return a unit of systemd. A name of it occurs once in its section."""
    found = configparser.ConfigParser(interpolation=None, strict=True)
    found.optionxform = str  # type: ignore[assignment, method-assign] # names have capital letters
    found.read_string((DEPLOY / name).read_text())
    return found


def unit_words() -> list[str]:
    """Return the command of the unit, with a credential of this machine."""
    words = shlex.split(unit("limpet.service")["Service"]["ExecStart"])
    return [Path(words[0]).name, *words[1:]]


def test_the_unit_has_options_that_exist_and_gives_the_process_its_time() -> None:
    group: Any = typer.main.get_command(app)
    words = unit_words()
    assert words[:2] == ["limpet", "serve"]
    options = group.commands["serve"].make_context("serve", words[2:]).params
    assert options["http"] is None, "the address is that of the socket unit"
    assert options["store"].startswith(
        "sqlite:////var/lib/" + unit("limpet.service")["Service"]["StateDirectory"]
    )
    assert float(options["drain"]) + MARGIN < float(unit("limpet.service")["Service"]["TimeoutStopSec"])
    assert unit("limpet.socket")["Socket"]["ListenStream"] == "127.0.0.1:8000"
    assert unit("limpet.service")["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert unit("limpet.service")["Service"]["KillMode"] == "mixed", "the workers are stopped by their parent"


@http_test
async def test_the_unit_is_upgraded_by_a_link_and_a_signal_while_a_session_goes_on(tmp_path: Path) -> None:
    for release in ("1", "2"):
        code = tmp_path / "releases" / release / "server.py"
        code.parent.mkdir(parents=True)
        code.write_text(_RELEASE.format(release=release))
    link = tmp_path / "current"
    link.symlink_to("releases/1")
    options = ("--workers", "2", "--store", f"sqlite:///{tmp_path}/mcp.db", "--drain", "60")
    with fleet(*options, target=f"{link}/server.py:server") as process:
        client = await Client.opened(process.port)
        assert await client.call("release") == "1"
        running = asyncio.ensure_future(client.call("patient", folder=str(tmp_path)))
        await until((tmp_path / "runs").exists)
        newer = tmp_path / "newer"
        newer.symlink_to("releases/2")
        newer.rename(link)
        process.tell(signal.SIGHUP)

        await until(lambda: is_seen(client, "2"))
        (tmp_path / "go").touch()
        assert await running == "patient 1", "the call of the old worker has finished"
        await until(lambda: are_all(client, "2"))


async def is_seen(client: Client, release: str) -> bool:
    return bool(await client.call("release") == release)


async def are_all(client: Client, release: str) -> bool:
    """Ask several times: each call has a connection of its own, which any worker may accept."""
    return {await client.call("release") for _ in range(6)} == {release}


_RELEASE: Final = """
import asyncio
from pathlib import Path
from limpet import Server

server = Server("released")


@server.tool
async def release() -> str:
    return "{release}"


@server.tool
async def patient(folder: str) -> str:
    Path(folder, "runs").touch()
    while not Path(folder, "go").exists():
        await asyncio.sleep(0.05)
    return "patient {release}"
"""


def commands() -> Iterator[list[str]]:
    """Yield every `limpet serve` of the examples, from its target on."""
    container = pod()["containers"][0]
    yield [*container["command"], *container["args"]]
    yield image_words("ENTRYPOINT") + image_words("CMD")
    yield image_words("ENTRYPOINT") + compose()["mcp"]["command"]


@pytest.mark.parametrize("words", list(commands()), ids=["kubernetes", "image", "compose"])
def test_every_option_exists_and_has_a_value_that_can_be_read(words: list[str]) -> None:
    group: Any = typer.main.get_command(app)
    assert words[:2] == ["limpet", "serve"]
    context = group.commands["serve"].make_context("serve", words[2:])
    assert context.params["http"] == "0.0.0.0:8000"
    assert context.params["target"] == "server.py:server"
    assert context.params["allow_host"] or context.params["public_url"]


def test_the_process_has_the_time_it_asks_for() -> None:
    for words, grace in (
        (pod()["containers"][0]["args"], pod()["terminationGracePeriodSeconds"]),
        (compose()["mcp"]["command"], int(compose()["mcp"]["stop_grace_period"].removesuffix("s"))),
    ):
        given = dict(word.split("=") for word in words if "=" in word)
        assert 0 < float(given["--drain-notice"]) + float(given["--drain"]) + MARGIN < grace


def test_probes_and_checks_are_at_the_paths_that_answer_them() -> None:
    container = pod()["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == LIVE
    assert container["readinessProbe"]["httpGet"]["path"] == READY
    assert f"option httpchk GET {READY}" in (DEPLOY / "haproxy.cfg").read_text()
    [check] = [line for line in image().splitlines() if "urllib.request" in line]
    assert f"http://127.0.0.1:8000{LIVE}" in check


def test_the_store_is_named_by_the_environment_and_keeps_its_keys() -> None:
    secret = objects()["Secret", "mcp-store"]["stringData"]
    (variable,) = pod()["containers"][0]["env"]
    assert variable["name"] == "LIMPET_STORE"
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "mcp-store", "key": "url"}
    assert secret["url"].partition(":")[0] in SCHEMES
    assert compose()["mcp"]["environment"]["LIMPET_STORE"].partition(":")[0] in SCHEMES
    for settings in (secret["redis.conf"], shlex.join(compose()["redis"]["command"])):
        assert re.search(r"maxmemory-policy\s+noeviction", settings)
        assert re.search(r"appendonly\s+yes", settings)


def test_what_refers_to_each_other_is_there() -> None:
    everything = objects()
    labels = everything["Deployment", "mcp"]["spec"]["template"]["metadata"]["labels"]
    assert everything["Service", "mcp"]["spec"]["selector"] == labels
    assert everything["PodDisruptionBudget", "mcp"]["spec"]["selector"]["matchLabels"] == labels
    (rule,) = everything["Ingress", "mcp"]["spec"]["rules"]
    assert f"--public-url=https://{rule['host']}/mcp" in pod()["containers"][0]["args"]
    assert everything["Ingress", "mcp"]["spec"]["tls"][0]["hosts"] == [rule["host"]]
    paths = rule["http"]["paths"]
    assert [path["path"] for path in paths] == ["/mcp", f"/.well-known/{RESOURCE}"]
    for path in paths:
        assert path["backend"]["service"] == {"name": "mcp", "port": {"name": "http"}}
    assert everything["Service", "mcp"]["spec"]["ports"][0]["name"] == "http"


def test_haproxy_takes_its_configuration() -> None:
    config = (DEPLOY / "haproxy.cfg").read_text()
    # The names of a compose network are unknown here.
    checked = re.sub(r"mcp:8000 resolvers docker init-addr libc,none", "127.0.0.1:8000", config)
    assert checked != config
    done = subprocess.run(
        [program("haproxy"), "-c", "-f", "/dev/stdin"],
        input=checked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def settings_of(file: str) -> str:
    """Return a configuration without its comments."""
    return re.sub(r"\s*#.*$", "", (DEPLOY / file).read_text(), flags=re.MULTILINE)


def test_haproxy_delays_no_event_and_sends_no_request_twice() -> None:
    lines = [line.strip() for line in settings_of("haproxy.cfg").splitlines()]
    for line in ("option http-no-delay", "option redispatch", "retry-on conn-failure"):
        assert line in lines


def test_haproxy_waits_for_a_head_as_long_as_the_server_does() -> None:
    lines = settings_of("haproxy.cfg").splitlines()
    (seconds,) = [line.split()[-1] for line in lines if line.split()[:2] == ["timeout", "http-request"]]
    assert seconds == f"{Limits().header_seconds:g}s"


def test_nginx_buffers_nothing_and_waits_long_enough() -> None:
    config = settings_of("nginx.conf")
    assert config.count("{") == config.count("}")
    for line in ("proxy_buffering off;", "proxy_set_header Host $host;", "proxy_read_timeout 1h;"):
        assert line in config
    assert "non_idempotent" not in config
    assert f"client_max_body_size {Limits().body >> 20}m;" in config


def test_the_ingress_buffers_nothing_and_takes_every_body() -> None:
    notes = objects()["Ingress", "mcp"]["metadata"]["annotations"]
    prefix = "nginx.ingress.kubernetes.io/proxy"
    assert notes[f"{prefix}-buffering"] == "off"
    assert notes[f"{prefix}-next-upstream"] == "error"
    assert notes[f"{prefix}-body-size"] == f"{Limits().body >> 20}m"


@pytest.mark.parametrize("words", list(commands()), ids=["kubernetes", "image", "compose"])
def test_nothing_serves_anonymous_clients_on_all_interfaces(words: list[str]) -> None:
    assert not [word for word in words if word.startswith("--allow-anonymous")]
    line = shlex.join(words[1:]).replace("server.py:server", f"{SMALL}:server")
    without = re.sub(r"--verifier[= ]auth.py:verify", "", line)
    assert without != line
    done = subprocess.run(
        [sys.executable, "-m", "limpet", *shlex.split(without)],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND,
        env={name: value for name, value in os.environ.items() if name != "LIMPET_STORE"},
    )
    assert done.returncode == 2
    assert "verifier" in done.stderr


def test_the_pod_of_the_manifest_serves_its_probes_and_its_host(tmp_path: Path) -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "ingress.md").read_text()
    for name, text in re.findall(r"^```python (\w+\.py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    container, port = pod()["containers"][0], free_port()
    (declared,) = container["ports"]
    assert f"--http=0.0.0.0:{declared['containerPort']}" in container["args"]
    args = [word.replace(f":{declared['containerPort']}", f":{port}") for word in container["args"]]
    env = {name: value for name, value in os.environ.items() if name != "LIMPET_STORE"}
    process = subprocess.Popen(
        [sys.executable, "-m", "limpet", *args],
        cwd=tmp_path,
        env={**env, "MCP_TOKEN": "a-long-secret-of-ada"},
        stderr=subprocess.DEVNULL,
    )
    live, ready = (f"{probe}Probe" for probe in ("liveness", "readiness"))
    path = {probe: container[probe]["httpGet"]["path"] for probe in (live, ready)}
    try:
        wait_until_connected(port, process)
        assert [asked(port, path[probe], "10.1.2.3") for probe in (live, ready)] == [200, 200]
        (rule,) = objects()["Ingress", "mcp"]["spec"]["rules"]
        for host, status in ((rule["host"], 401), ("other.example", 421)):
            assert {asked(port, one["path"], host) for one in rule["http"]["paths"][:1]} == {status}
        process.terminate()
        wait_until(lambda: asked(port, path[ready], "10.1.2.3") == 503)
        assert asked(port, path[live], "10.1.2.3") == 200, "it goes on for the time of the notice"
    finally:
        process.kill()
        process.wait()


def asked(port: int, path: str, host: str) -> int:
    """Return the status of a request with a Host header."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND)
    method, body = ("POST", "{}") if path == "/mcp" else ("GET", None)
    kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Host": host, **kinds})
        return connection.getresponse().status


def test_the_secrets_that_the_pod_reads_are_made_by_the_page() -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "kubernetes.md").read_text()
    made = set(re.findall(r"kubectl create secret \w+ ([\w-]+)", page.partition("## With Helm")[0]))
    named = {one["secretRef"]["name"] for one in pod()["containers"][0]["envFrom"]}
    named |= {one["secretName"] for one in objects()["Ingress", "mcp"]["spec"]["tls"]}
    assert made == named


def test_compose_publishes_its_ports_to_this_machine_only() -> None:
    published = [port for service in compose().values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_compose_with_postgresql_differs_in_the_store_only() -> None:
    other = yaml.safe_load((DEPLOY / "compose.postgres.yaml").read_text())["services"]
    ours = compose()
    url = other["mcp"]["environment"].pop("LIMPET_STORE")
    assert parse(url).schema == "limpet"
    ours["mcp"]["environment"].pop("LIMPET_STORE")
    assert other["mcp"].pop("depends_on") == {"postgres": {"condition": "service_healthy"}}
    ours["mcp"].pop("depends_on")
    assert {name: one for name, one in other.items() if name != "postgres"} == {
        name: one for name, one in ours.items() if name != "redis"
    }


def test_the_page_gives_compose_the_variables_that_it_requires() -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "kubernetes.md").read_text()
    required = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose.yaml").read_text()))
    (given,) = re.findall(r"`([^`]*) docker compose up --build`", page)
    assert required
    assert {word.partition("=")[0] for word in shlex.split(given)} == required


# The image


@pytest.mark.parametrize(
    "path", [DEPLOY.parent / "Dockerfile", DEPLOY / "Dockerfile"], ids=["product", "server"]
)
def test_the_linter_accepts_the_image(path: Path) -> None:
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, "--no-color", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_made_from_files_of_the_repository_that_are_not_ignored() -> None:
    root = DEPLOY.parent
    kept = [line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", image(), re.MULTILINE)
        for word in line.split()
    ]
    assert len(copied) > 5
    for name in copied:
        assert (root / name).exists(), name
        assert any(name == one or name.startswith(f"{one}/") for one in kept if one != "tools"), name


def test_each_stage_of_the_image_ends_as_an_ordinary_user() -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", image(), re.MULTILINE | re.DOTALL))
    assert [*stages] == ["build", "base", "node", "programs", "limpet"], "the last one is the default"
    for name in ("base", "programs"):
        assert re.findall(r"^USER (\d+)$", stages[name], re.MULTILINE)[-1] == "10001"
    assert f"--uid {pod()['containers'][0]['securityContext']['runAsUser']} " in stages["base"]
    assert stages["limpet"].strip() == ""


def test_what_the_image_installs_is_locked() -> None:
    installs = re.findall(r"\binstall --no-cache-dir (.*?)(?: \\)?$", image(), re.MULTILINE)
    assert len(installs) == 4
    assert [one for one in installs if "--require-hashes" not in one] == ["--no-deps dist/*.whl"]
