"""The resources for KServe: what they say of the server, and whether Kubernetes and KServe know every word of them."""

import copy
import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from app.cli.env_schema import environment_schema
from tests.deploy.containerfile import environment, only, stages
from tests.deploy.kustomize import FOLDER, OVERLAYS, Document, built, identity, of_kind
from tests.support.environments import python_with
from tests.support.server_process import ROOT

IMAGE = stages()[-1]
PROPERTIES = environment_schema()["properties"]
HTTP, GRPC = (PROPERTIES[name]["default"] for name in ("CHARIOTEER_HTTP_PORT", "CHARIOTEER_GRPC_PORT"))
STANDARD = ["standard", "v1", "grpc"]


def overlay(name: str) -> list[Document]:
    return built(FOLDER / "overlays" / name)


def predictor(documents: list[Document]) -> dict[str, Any]:
    return of_kind(documents, "InferenceService")["spec"]["predictor"]


def container() -> dict[str, Any]:
    (only_one,) = of_kind(overlay("standard"), "ClusterServingRuntime")["spec"]["containers"]
    return only_one


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_two_resources_are_the_same(name: str) -> None:
    identities = list(map(identity, overlay(name)))
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_service_is_of_what_the_runtime_takes(name: str) -> None:
    runtime, model = of_kind(overlay(name), "ClusterServingRuntime"), predictor(overlay(name))["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert model["modelFormat"]["name"] in [each["name"] for each in runtime["spec"]["supportedModelFormats"]]


def test_each_protocol_has_an_overlay() -> None:
    versions = {predictor(overlay(name))["model"]["protocolVersion"] for name in OVERLAYS}
    assert versions == set(of_kind(overlay("standard"), "ClusterServingRuntime")["spec"]["protocolVersions"])


@pytest.mark.parametrize("name", STANDARD)
def test_ports_are_those_of_the_server_and_named_where_they_are_scraped(name: str) -> None:
    documents = overlay(name)
    ports = {each["name"]: each["containerPort"] for each in predictor(documents)["model"]["ports"]}
    assert set(ports.values()) == {HTTP, GRPC}
    (endpoint,) = of_kind(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert ports[endpoint["port"]] == HTTP
    (rule,) = of_kind(documents, "NetworkPolicy")["spec"]["ingress"]
    assert {each["port"] for each in rule["ports"]} == {HTTP, GRPC}


def test_grpc_is_first_where_it_is_asked_for() -> None:
    assert predictor(overlay("grpc"))["model"]["ports"][0] == {"name": "h2c", "containerPort": GRPC, "protocol": "TCP"}


@pytest.mark.parametrize("name", STANDARD)
def test_what_selects_pods_selects_those_of_the_service(name: str) -> None:
    documents = overlay(name)
    label = {"serving.kserve.io/inferenceservice": of_kind(documents, "InferenceService")["metadata"]["name"]}
    assert of_kind(documents, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": label}
    for kind in ("PodDisruptionBudget", "ServiceMonitor"):
        assert of_kind(documents, kind)["spec"]["selector"] == {"matchLabels": label}


@pytest.mark.parametrize("name", STANDARD)
def test_a_pod_is_given_longer_to_end_than_its_requests(name: str) -> None:
    documents = overlay(name)
    drain = PROPERTIES["CHARIOTEER_DRAIN_TIMEOUT"]["default"]
    assert predictor(documents)["terminationGracePeriodSeconds"] > drain
    assert of_kind(documents, "PodDisruptionBudget")["spec"]["minAvailable"] < predictor(documents)["minReplicas"]


def test_the_container_is_the_image() -> None:
    assert container()["image"].startswith("charioteer:")
    assert container()["securityContext"]["runAsNonRoot"] is (int(only(IMAGE, "USER")) > 0)
    for variable in container()["env"]:
        assert variable["name"] in PROPERTIES
        # The image leaves it to whoever runs it to say that others ask callers who they are.
        assert variable["value"] == {**environment(IMAGE), "CHARIOTEER_INSECURE": "true"}[variable["name"]]
    assert "CHARIOTEER_INSECURE" in {each["name"] for each in container()["env"]}
    assert "CHARIOTEER_INSECURE" not in environment(IMAGE)
    for probe in ("livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"]["port"] == HTTP


def test_the_service_monitor_says_no_more_than_it_needs() -> None:
    monitor = of_kind(overlay("standard"), "ServiceMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert set(monitor["spec"]) == {"selector", "endpoints"}
    assert monitor["spec"]["endpoints"] == [{"port": "http1", "path": "/metrics", "interval": "15s"}]


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERLAYS)
def test_kustomize_makes_the_same_of_them(name: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl")
    done = subprocess.run([kubectl, "kustomize", FOLDER / "overlays" / name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made: list[Document] = list(yaml.safe_load_all(done.stdout))
    assert sorted(made, key=identity) == sorted(overlay(name), key=identity)


def faults(documents: Sequence[Document]) -> list[list[str]]:
    script = str(ROOT / "tests/deploy/kubernetes_kinds.py")
    command = [str(python_with("kserve")), script]
    done = subprocess.run(command, input=json.dumps(documents), capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_kubernetes_and_kserve_know_every_word() -> None:
    checked = [each for name in OVERLAYS for each in overlay(name) if each["kind"] != "ServiceMonitor"]
    assert {each["kind"] for each in checked} == {
        "ClusterServingRuntime", "InferenceService", "NetworkPolicy", "PodDisruptionBudget",
    }  # fmt: skip
    assert dict(zip(map(identity, checked), faults(checked), strict=True)) == {identity(each): [] for each in checked}


PLANTED: dict[str, tuple[str, tuple[str | int, ...], object, str]] = {
    "wrong field": ("InferenceService", ("spec", "predictor", "minReplica"), 2, "minReplica: unknown field"),
    "wrong type": ("InferenceService", ("spec", "predictor", "maxReplicas"), "4", "maxReplicas: not int"),
    "missing name": ("PodDisruptionBudget", ("metadata", "name"), None, "metadata.name: missing"),
    "missing predictor": ("InferenceService", ("spec", "predictor"), None, "`predictor`, must not be"),
    "deep in a list": ("NetworkPolicy", ("spec", "ingress", 0, "ports", 0, "prot"), "TCP", "ports[0].prot: unknown"),
    "misspelt probe": ("ClusterServingRuntime", ("spec", "containers", 0, "readyProbe"), {}, "readyProbe: unknown"),
    "probe without port": (
        "ClusterServingRuntime", ("spec", "containers", 0, "livenessProbe", "httpGet", "port"), None, "port",
    ),
    "a mapping for a list": ("ClusterServingRuntime", ("spec", "containers"), {}, "containers: not a list"),
    "wrong version": ("PodDisruptionBudget", ("apiVersion",), "policy/v1beta1", "unknown kind"),
}  # fmt: skip


@pytest.mark.slow
def test_planted_errors_are_found() -> None:
    planted: list[Document] = []
    for kind, path, value, _ in PLANTED.values():
        document = copy.deepcopy(of_kind(overlay("standard"), kind))
        target: Any = document
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        planted.append(document)
    found = dict(zip(PLANTED, faults(planted), strict=True))
    missed = [name for name, (*_, said) in PLANTED.items() if not any(said in fault for fault in found[name])]
    assert missed == [], found
