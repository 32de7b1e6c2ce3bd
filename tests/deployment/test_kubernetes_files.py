"""The Kubernetes manifests: they fit together, and start what Docker Compose starts."""

import re
from pathlib import Path
from typing import Any

import yaml

DOCKER = Path(__file__).parents[2] / "docker"
FOLDER = DOCKER / "kubernetes"
FILES = ("server.yaml", "nodes.yaml", "enrol.yaml", "submit.yaml")


def objects() -> list[dict[str, Any]]:
    return [o for f in FILES for o in yaml.safe_load_all((FOLDER / f).read_text())]


def pods() -> dict[str, dict[str, Any]]:
    found = [o for o in objects() if "template" in o.get("spec", {})]
    return {
        o["metadata"].get("name", o["metadata"].get("generateName", "").strip("-")): o["spec"][
            "template"
        ]
        for o in found
    }


def test_all_parts_are_there() -> None:
    kinds = {(o["kind"], o["metadata"].get("name", "")) for o in objects()}
    assert {
        ("Deployment", "superlink"),
        ("Deployment", "serverapp"),
        ("StatefulSet", "node"),
    } <= kinds
    assert set(pods()) == {"superlink", "serverapp", "node", "enrol", "submit"}
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert listed == ["server.yaml", "nodes.yaml"]


def test_they_start_what_compose_starts() -> None:
    services = yaml.safe_load((DOCKER / "compose.yml").read_text())["services"]
    for name in ("superlink", "serverapp"):
        (container,) = pods()[name]["spec"]["containers"]
        ours = {*container["command"], *container["args"]}
        elsewhere = re.compile(
            r"--(host|health-server-address)="
        )  # a pod has an address of its own
        theirs = {option for option in services[name]["command"] if not elsewhere.match(option)}
        assert theirs <= ours
    for name in ("submit", "enrol"):
        (container,) = pods()[name]["spec"]["containers"]
        compose = services["fleet" if name == "enrol" else name]
        assert container["command"] == compose["entrypoint"]


def test_every_pod_is_confined_and_no_volume_is_missing() -> None:
    claims = {o["metadata"]["name"] for o in objects() if o["kind"] == "PersistentVolumeClaim"}
    own = {"node": {"state", "data"}}
    for name, pod in pods().items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        volumes = {v["name"] for v in spec["volumes"]} | own.get(name, set())
        for container in spec["containers"] + spec.get("initContainers", []):
            confined = container["securityContext"]
            assert confined["readOnlyRootFilesystem"] is True
            assert confined["capabilities"] == {"drop": ["ALL"]}
            assert {m["name"] for m in container["volumeMounts"]} <= volumes
        used = {
            v["persistentVolumeClaim"]["claimName"]
            for v in spec["volumes"]
            if "persistentVolumeClaim" in v
        }
        assert used <= claims


def test_only_the_server_side_reaches_the_control_port() -> None:
    (policy,) = [o for o in objects() if o["kind"] == "NetworkPolicy"]
    rules = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    assert rules["fleet"] is None
    assert rules["control"] == [{"podSelector": {"matchLabels": {"side": "server"}}}]
    labelled = {
        name for name, pod in pods().items() if pod["metadata"]["labels"].get("side") == "server"
    }
    assert labelled == {"superlink", "serverapp", "enrol", "submit"}


def test_every_path_that_a_program_is_given_is_mounted() -> None:
    mounted: dict[str, set[str]] = {}
    for name, pod in pods().items():
        for container in pod["spec"]["containers"]:
            places = {mount["mountPath"] for mount in container["volumeMounts"]}
            mounted[name] = places
            given = [*container["command"], *container["args"]]
            given += [str(each.get("value", "")) for each in container.get("env", [])]
            for path in re.findall(r"(?<![\w./:])/[a-z]+", " ".join(given)):
                # What a run config names is read by the ServerApp.
                where = mounted["serverapp"] if name == "submit" else places
                assert path in {"/app", *where}, (name, path)
    (submit,) = pods()["submit"]["spec"]["containers"]
    assert "data.path='/data/test.npz'" in submit["args"][-1]


def test_the_servers_test_data_are_where_compose_has_them() -> None:
    services = yaml.safe_load((DOCKER / "compose.yml").read_text())["services"]
    assert any(volume.endswith(":/data:ro") for volume in services["serverapp"]["volumes"])
    (container,) = pods()["serverapp"]["spec"]["containers"]
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
