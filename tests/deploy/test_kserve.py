"""Check the resources for KServe against the server's settings and against the models of Kubernetes and KServe."""

import copy
import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from app.cli.env_schema import environment_schema
from tests.deploy.containerfile import environment, only_argument, stages
from tests.deploy.kustomize import FOLDER, OVERLAYS, Document, build, identity, of_kind
from tests.support.client_environments import python_with
from tests.support.server_process import ROOT

IMAGE = stages()[-1]
PROPERTIES = environment_schema()["properties"]
HTTP, GRPC = (PROPERTIES[name]["default"] for name in ("CHARIOTEER_HTTP_PORT", "CHARIOTEER_GRPC_PORT"))
STANDARD = ["standard", "v1", "grpc"]


def overlay(name: str) -> list[Document]:
    return build(FOLDER / "overlays" / name)


def predictor(documents: list[Document]) -> dict[str, Any]:
    return of_kind(documents, "InferenceService")["spec"]["predictor"]


def container() -> dict[str, Any]:
    (runtime_container,) = of_kind(overlay("standard"), "ClusterServingRuntime")["spec"]["containers"]
    return runtime_container


@pytest.mark.parametrize("name", OVERLAYS)
def test_resource_identities_are_unique(name: str) -> None:
    identities = list(map(identity, overlay(name)))
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("name", OVERLAYS)
def test_service_uses_format_and_protocol_of_its_runtime(name: str) -> None:
    runtime, model = of_kind(overlay(name), "ClusterServingRuntime"), predictor(overlay(name))["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert model["modelFormat"]["name"] in [
        model_format["name"] for model_format in runtime["spec"]["supportedModelFormats"]
    ]


def test_each_protocol_has_an_overlay() -> None:
    versions = {predictor(overlay(name))["model"]["protocolVersion"] for name in OVERLAYS}
    assert versions == set(of_kind(overlay("standard"), "ClusterServingRuntime")["spec"]["protocolVersions"])


@pytest.mark.parametrize("name", STANDARD)
def test_resources_use_the_default_ports(name: str) -> None:
    documents = overlay(name)
    ports = {port["name"]: port["containerPort"] for port in predictor(documents)["model"]["ports"]}
    assert set(ports.values()) == {HTTP, GRPC}
    (endpoint,) = of_kind(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert ports[endpoint["port"]] == HTTP
    (rule,) = of_kind(documents, "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == {HTTP, GRPC}


def test_grpc_overlay_has_grpc_port_first() -> None:
    assert predictor(overlay("grpc"))["model"]["ports"][0] == {"name": "h2c", "containerPort": GRPC, "protocol": "TCP"}


@pytest.mark.parametrize("name", STANDARD)
def test_selectors_match_pods_of_the_service(name: str) -> None:
    documents = overlay(name)
    label = {"serving.kserve.io/inferenceservice": of_kind(documents, "InferenceService")["metadata"]["name"]}
    assert of_kind(documents, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": label}
    for kind in ("PodDisruptionBudget", "ServiceMonitor"):
        assert of_kind(documents, kind)["spec"]["selector"] == {"matchLabels": label}


@pytest.mark.parametrize("name", STANDARD)
def test_pod_grace_period_exceeds_drain_timeout(name: str) -> None:
    documents = overlay(name)
    drain = PROPERTIES["CHARIOTEER_DRAIN_TIMEOUT"]["default"]
    assert predictor(documents)["terminationGracePeriodSeconds"] > drain
    assert of_kind(documents, "PodDisruptionBudget")["spec"]["minAvailable"] < predictor(documents)["minReplicas"]


def test_container_settings_match_the_image() -> None:
    assert container()["image"].startswith("charioteer:")
    assert container()["securityContext"]["runAsNonRoot"] is (int(only_argument(IMAGE, "USER")) > 0)
    for variable in container()["env"]:
        assert variable["name"] in PROPERTIES
        # The image does not set it: the operator must decide that a gateway authenticates clients.
        assert variable["value"] == {**environment(IMAGE), "CHARIOTEER_INSECURE": "true"}[variable["name"]]
    assert "CHARIOTEER_INSECURE" in {variable["name"] for variable in container()["env"]}
    assert "CHARIOTEER_INSECURE" not in environment(IMAGE)
    for probe in ("livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"]["port"] == HTTP


def test_service_monitor_has_only_selector_and_endpoint() -> None:
    monitor = of_kind(overlay("standard"), "ServiceMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert set(monitor["spec"]) == {"selector", "endpoints"}
    assert monitor["spec"]["endpoints"] == [{"port": "http1", "path": "/metrics", "interval": "15s"}]


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERLAYS)
def test_kubectl_kustomize_builds_the_same_documents(name: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl")
    process = subprocess.run([kubectl, "kustomize", FOLDER / "overlays" / name], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    documents: list[Document] = list(yaml.safe_load_all(process.stdout))
    assert sorted(documents, key=identity) == sorted(overlay(name), key=identity)


def faults(documents: Sequence[Document]) -> list[list[str]]:
    script = str(ROOT / "tests/deploy/kubernetes_kinds.py")
    command = [str(python_with("kserve")), script]
    process = subprocess.run(command, input=json.dumps(documents), capture_output=True, text=True, timeout=120, cwd="/")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.slow
def test_resources_validate_against_kubernetes_and_kserve_models() -> None:
    resources = [document for name in OVERLAYS for document in overlay(name) if document["kind"] != "ServiceMonitor"]
    assert {resource["kind"] for resource in resources} == {
        "ClusterServingRuntime", "InferenceService", "NetworkPolicy", "PodDisruptionBudget",
    }  # fmt: skip
    assert dict(zip(map(identity, resources), faults(resources), strict=True)) == {
        identity(resource): [] for resource in resources
    }


ERRORS: dict[str, tuple[str, tuple[str | int, ...], object, str]] = {
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
def test_validation_reports_deliberate_errors() -> None:
    documents: list[Document] = []
    for kind, path, value, _ in ERRORS.values():
        document = copy.deepcopy(of_kind(overlay("standard"), kind))
        target: Any = document
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        documents.append(document)
    errors = dict(zip(ERRORS, faults(documents), strict=True))
    missed = [
        name for name, (*_, error_text) in ERRORS.items() if not any(error_text in error for error in errors[name])
    ]
    assert missed == [], errors
