"""Check the resources for KServe against the settings of the server and of the image."""

from typing import Any

import pytest

from app.plugins.page.configuration import environment_schema
from tests.deploy.containerfile import environment, only_argument, stages
from tests.deploy.kustomize import KSERVE, Document, build, identity, of_kind, overlays

OVERLAYS = [path.name for path in overlays(KSERVE)]
IMAGE = stages()[-1]
PROPERTIES = environment_schema()["properties"]
HTTP, GRPC = map(int, only_argument(IMAGE, "EXPOSE").split()[:2])
STANDARD = ["standard", "v1", "grpc", "namespaced"]


def overlay(name: str) -> list[Document]:
    return build(KSERVE / "overlays" / name)


def predictor(documents: list[Document]) -> dict[str, Any]:
    return of_kind(documents, "InferenceService")["spec"]["predictor"]


def runtime(name: str) -> dict[str, Any]:
    return of_kind(overlay(name), "ServingRuntime" if name == "namespaced" else "ClusterServingRuntime")


@pytest.mark.parametrize("name", OVERLAYS)
def test_service_uses_format_and_protocol_of_its_runtime(name: str) -> None:
    identities = list(map(identity, overlay(name)))
    assert len(set(identities)) == len(identities)
    model = predictor(overlay(name))["model"]
    assert model["runtime"] == runtime(name)["metadata"]["name"]
    assert model["protocolVersion"] in runtime(name)["spec"]["protocolVersions"]
    formats = runtime(name)["spec"]["supportedModelFormats"]
    assert {"name": model["modelFormat"]["name"], "version": "1", "autoSelect": True} in formats


def test_each_protocol_has_an_overlay() -> None:
    versions = {predictor(overlay(name))["model"]["protocolVersion"] for name in OVERLAYS}
    assert versions == set(runtime("standard")["spec"]["protocolVersions"])


@pytest.mark.parametrize("name", STANDARD)
def test_resources_fit_the_ports_pods_and_drain_timeout_of_the_service(name: str) -> None:
    documents = overlay(name)
    ports = {port["name"]: port["containerPort"] for port in predictor(documents)["model"]["ports"]}
    assert set(ports.values()) == {HTTP, GRPC}
    (endpoint,) = of_kind(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert (ports[endpoint["port"]], endpoint["path"]) == (HTTP, "/metrics")
    (rule,) = of_kind(documents, "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == {HTTP, GRPC}
    label = {"serving.kserve.io/inferenceservice": of_kind(documents, "InferenceService")["metadata"]["name"]}
    assert of_kind(documents, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": label}
    for kind in ("PodDisruptionBudget", "ServiceMonitor"):
        assert of_kind(documents, kind)["spec"]["selector"] == {"matchLabels": label}
    drain = PROPERTIES["CHARIOTEER_DRAIN_TIMEOUT"]["default"]
    assert predictor(documents)["terminationGracePeriodSeconds"] > drain
    assert of_kind(documents, "PodDisruptionBudget")["spec"]["minAvailable"] < predictor(documents)["minReplicas"]


def test_grpc_overlay_has_grpc_port_first() -> None:
    assert predictor(overlay("grpc"))["model"]["ports"][0] == {"name": "h2c", "containerPort": GRPC, "protocol": "TCP"}


def test_container_settings_match_the_image() -> None:
    (container,) = runtime("standard")["spec"]["containers"]
    assert container["args"] == ["serve", "--model-name", "{{.Name}}"]
    assert container["image"].startswith("charioteer:")
    assert container["securityContext"]["runAsNonRoot"] is True
    for variable in container["env"]:
        assert variable["name"] in PROPERTIES
        # The image does not set it: the operator must decide that a gateway authenticates clients.
        assert variable["value"] == {**environment(IMAGE), "CHARIOTEER_INSECURE": "true"}[variable["name"]]
    assert "CHARIOTEER_INSECURE" in {variable["name"] for variable in container["env"]}
    assert "CHARIOTEER_INSECURE" not in environment(IMAGE)
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == HTTP
