"""The chart in deploy/helm: what it renders is valid, has options that exist, and is what deploy/kubernetes.yaml says."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
import yaml
from jsonschema import Draft7Validator

from limpet.auth.urls import RESOURCE
from limpet.cli.whole import app
from limpet.cli.worker import MARGIN
from limpet.fronts.http.decide.health import LIVE, READY
from tests.docs.helm import Chart, Failed, merged
from tests.docs.kubernetes_objects import faults

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = Chart(DEPLOY / "helm")
SECRETS: Final = {"store": {"name": "mcp-store"}, "admin": {"name": "mcp-admin"}}
SMALLEST: Final[dict[str, Any]] = {"secrets": SECRETS}
PEER: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
EVERYTHING: Final[dict[str, Any]] = {
    "image": {"tag": "2"},
    "imagePullSecrets": [{"name": "registry"}],
    "args": ["--hide-tool=rm"],
    "verifier": "",
    "oidc": {"issuer": "https://id.example.com", "audience": ["mail", "calendar"]},
    "secrets": {name: {"make": f"value of {name}"} for name in ("store", "admin", "forwardKey")},
    "envFrom": [{"secretRef": {"name": "mcp-tokens"}}],
    "ingress": {"enabled": True},
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"clients": [PEER], "operators": [PEER], "egress": [{"to": [PEER]}]},
    "cache": "2Gi",
    "podAnnotations": {"team": "tools"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
    ],
}
INTROSPECTED: Final[dict[str, Any]] = {
    "verifier": "",
    "introspection": {"url": "https://id.example.com/introspect", "id": "mcp"},
    "secrets": {**SECRETS, "introspection": {"name": "mcp-introspection"}},
    "admin": {"enabled": False},
    "target": "",
    "program": ["--", "npx", "-y", "some-server"],
    "podDisruptionBudget": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
VALUES: Final = {"the smallest": SMALLEST, "everything": EVERYTHING, "introspection": INTROSPECTED}


def objects(values: dict[str, Any]) -> dict[str, Any]:
    found = CHART.objects(values)
    by_kind = {item["kind"]: item for item in found}
    assert len(by_kind) == len(found), "one of each kind"
    return by_kind


def container(values: dict[str, Any]) -> dict[str, Any]:
    [found] = objects(values)["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("name", VALUES)
def test_kubernetes_accepts_what_the_chart_renders(name: str) -> None:
    for kind, item in objects(VALUES[name]).items():
        if kind != "ServiceMonitor":
            assert faults(item) == [], kind


def test_kubernetes_accepts_the_manifest() -> None:
    for item in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
        assert faults(item) == [], item["kind"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (("replicas: 3", "replica: 3"), "Deployment.spec has no member replica"),
        (("replicas: 3", 'replicas: "3"'), "Deployment.spec.replicas is '3', and not of the type int"),
        (("minAvailable: 2", "minAvailable: [2]"), "PodDisruptionBudget.spec.minAvailable is [2], and not of the type int"),
        (("        - name: mcp\n          image", "        - image"), "Deployment.spec.template.spec.containers[0].name is missing"),
    ],
)  # fmt: skip
def test_a_fault_of_an_object_is_found(broken: tuple[str, str], said: str) -> None:
    text = (DEPLOY / "kubernetes.yaml").read_text()
    assert broken[0] in text
    found = [fault for item in yaml.safe_load_all(text.replace(*broken, 1)) for fault in faults(item)]
    assert found == [said]


@pytest.mark.parametrize("name", VALUES)
def test_every_option_exists(name: str) -> None:
    found = container(VALUES[name])
    words = [*found["command"], *found["args"]]
    assert words[:2] == ["limpet", "serve"]
    group: Any = typer.main.get_command(app)
    program = words.index("--") if "--" in words else len(words)
    options = group.commands["serve"].make_context("serve", words[2:program]).params
    assert options["http"] == "0.0.0.0:8000"
    assert words[program + 1 :] == INTROSPECTED["program"][1:] if program < len(words) else options["target"]


def test_the_chart_and_the_manifest_make_the_same_server() -> None:
    values = merged(
        SMALLEST, {"ingress": {"enabled": True}, "envFrom": [{"secretRef": {"name": "mcp-tokens"}}]}
    )
    ours = objects(values)
    theirs = {item["kind"]: item for item in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
              if item["metadata"]["name"] == "mcp"}  # fmt: skip
    pod, other = (found["Deployment"]["spec"]["template"]["spec"] for found in (ours, theirs))
    [one], [two] = pod["containers"], other["containers"]
    assert [word for word in one["args"] if not word.startswith("--admin")] == two["args"]
    same = ["command", "image", "livenessProbe", "readinessProbe", "resources", "securityContext", "envFrom"]
    assert {name: one[name] for name in same} == {name: two[name] for name in same}
    same = ["terminationGracePeriodSeconds", "automountServiceAccountToken", "securityContext", "volumes"]
    assert {name: pod[name] for name in same} == {name: other[name] for name in same}
    for kind, path in (
        ("Deployment", "replicas"),
        ("Deployment", "strategy"),
        ("PodDisruptionBudget", "minAvailable"),
    ):
        assert ours[kind]["spec"][path] == theirs[kind]["spec"][path], path
    assert ours["Ingress"]["metadata"]["annotations"] == theirs["Ingress"]["metadata"]["annotations"]
    for part in ("rules", "tls"):
        assert ours["Ingress"]["spec"][part] == theirs["Ingress"]["spec"][part]


@pytest.mark.parametrize("name", VALUES)
def test_what_refers_to_each_other_is_there(name: str) -> None:
    found = objects(VALUES[name])
    template = found["Deployment"]["spec"]["template"]
    labels, ports = template["metadata"]["labels"], {one["name"] for one in container(VALUES[name])["ports"]}
    selectors = [
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        *(found[kind]["spec"]["selector"]["matchLabels"] for kind in ("PodDisruptionBudget", "ServiceMonitor") if kind in found),
        *(found[kind]["spec"]["podSelector"]["matchLabels"] for kind in ("NetworkPolicy",) if kind in found),
    ]  # fmt: skip
    assert all(selector == labels for selector in selectors)
    assert {one["targetPort"] for one in found["Service"]["spec"]["ports"]} == ports
    for rule in found.get("NetworkPolicy", {"spec": {"ingress": []}})["spec"]["ingress"]:
        assert {one["port"] for one in rule["ports"]} <= ports
    if "HorizontalPodAutoscaler" in found:
        target = found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
        assert target["name"] == found["Deployment"]["metadata"]["name"]
        assert "replicas" not in found["Deployment"]["spec"]
    made = found.get("Secret", {"metadata": {"name": ""}, "stringData": {}})
    for one in container(VALUES[name])["env"]:
        wanted = one["valueFrom"].get("secretKeyRef", {"name": ""})
        assert (
            wanted["name"] != made["metadata"]["name"]
            or not wanted["name"]
            or wanted["key"] in made["stringData"]
        )
    mounts = {one["name"] for one in container(VALUES[name])["volumeMounts"]}
    assert mounts == {one["name"] for one in template["spec"]["volumes"]}


def test_the_admin_port_is_closed_to_pods_that_are_not_named() -> None:
    [rule] = objects(SMALLEST)["NetworkPolicy"]["spec"]["ingress"]
    assert [one["port"] for one in rule["ports"]] == ["http"]
    assert [one["ports"][0]["port"] for one in objects(EVERYTHING)["NetworkPolicy"]["spec"]["ingress"]] == [
        "http",
        "admin",
    ]


def test_probes_times_and_paths_are_those_of_the_product() -> None:
    found = container(EVERYTHING)
    assert found["livenessProbe"]["httpGet"]["path"] == LIVE
    assert found["readinessProbe"]["httpGet"]["path"] == READY
    grace = objects(EVERYTHING)["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert CHART.values["drainNotice"] + CHART.values["drain"] + MARGIN < grace
    [rule] = objects(EVERYTHING)["Ingress"]["spec"]["rules"]
    assert [one["path"] for one in rule["http"]["paths"]] == ["/mcp", f"/.well-known/{RESOURCE}"]


def test_the_container_has_the_memory_that_the_process_may_take() -> None:
    sizes = {"M": 2**20, "Mi": 2**20, "Gi": 2**30}
    figure, limit = CHART.values["memory"], CHART.values["resources"]["limits"]["memory"]
    number, unit = re.fullmatch(r"(\d+)(\w+)", limit).groups()  # type: ignore[union-attr]
    assert int(figure.removesuffix("M")) * sizes["M"] * 1.2 < int(number) * sizes[unit]


def test_the_scrape_has_the_job_and_the_metric_of_the_alert_rules() -> None:
    monitor = objects(EVERYTHING)["ServiceMonitor"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("admin", "/metrics")
    secret = objects(EVERYTHING)["Secret"]
    assert endpoint["authorization"]["credentials"] == {"name": secret["metadata"]["name"], "key": "token"}
    labels = objects(EVERYTHING)["Service"]["metadata"]["labels"]
    alerts = (DEPLOY / "prometheus-alerts.yaml").read_text()
    assert f'up{{job="{labels[monitor["spec"]["jobLabel"]]}"}}' in alerts
    [calls, _] = objects(EVERYTHING)["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert f'{calls["pods"]["metric"]["name"]}{{state="' in alerts


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "secrets.store.name"),
        ({"secrets": {"store": {"name": "mcp-store"}}}, "secrets.admin.name"),
        ({**SMALLEST, "verifier": ""}, "without a check of tokens"),
        ({**INTROSPECTED, "secrets": SECRETS}, "secrets.introspection.name"),
    ],
)
def test_what_is_missing_is_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(Failed, match=said):
        CHART.objects(values)


def rejected(values: dict[str, Any]) -> list[str]:
    checked = Draft7Validator(CHART.schema).iter_errors(merged(CHART.values, values))
    return [".".join(map(str, error.absolute_path)) for error in checked]


@pytest.mark.parametrize("name", VALUES)
def test_the_schema_accepts_the_values(name: str) -> None:
    assert rejected(VALUES[name]) == []


@pytest.mark.parametrize(
    "values",
    [{"replica": 3}, {"replicas": 0}, {"replicas": "3"}, {"memory": "768Mi"}, {"publicUrl": "mcp.example.com"},
     {"secrets": {"store": "redis://x"}}, {"autoscaling": {"cpu": 101}}, {"image": {"pullPolicy": "always"}},
     {"drain": -1}, {"cache": "big"}],
    ids=json.dumps,
)  # fmt: skip
def test_the_schema_rejects_wrong_values(values: dict[str, Any]) -> None:
    assert len(rejected(values)) == 1


def test_the_schema_has_every_value_and_no_other() -> None:
    def same(values: dict[str, Any], schema: dict[str, Any], place: str) -> None:
        if "properties" in schema:
            assert values.keys() == schema["properties"].keys() - {"global"}, place
            for name, value in values.items():
                same(value, schema["properties"][name], f"{place}.{name}")

    same(CHART.values, CHART.schema, "values")


def test_the_notes_name_the_address() -> None:
    assert "serves https://mcp.example.com/mcp with 3 to 10 replicas" in CHART.notes(EVERYTHING)
