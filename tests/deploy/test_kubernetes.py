"""Check the manifests for plain Kubernetes, compose.yaml and the systemd unit against the image and the settings."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.core.settings.server import DEMO_MODELS
from app.plugins.page.configuration import environment_schema
from tests.deploy.containerfile import arguments_of, environment, only_argument, stages
from tests.deploy.kustomize import (
    KSERVE,
    KUBERNETES,
    build,
    containers,
    kserve_errors,
    of_kind,
    overlays,
    read,
)
from tests.support.servers.server_process import ROOT

IMAGE = stages()[-1]
PROPERTIES: dict[str, Any] = environment_schema()["properties"]
HTTP, GRPC = map(int, arguments_of(IMAGE, "EXPOSE")[0].split()[:2])
DRAIN = PROPERTIES["CHARIOTEER_DRAIN_TIMEOUT"]["default"]
LABELS = {"app.kubernetes.io/name": "charioteer"}
COMPOSE = read(ROOT / "deploy" / "compose.yaml")
UNIT = ROOT / "deploy" / "systemd" / "charioteer@.service"
_MAX_EXPOSURE = 2.0

every_overlay = pytest.mark.parametrize("folder", overlays(KUBERNETES), ids=lambda folder: folder.name)


@every_overlay
def test_containers_have_known_variables_limits_and_no_rights(folder: Path) -> None:
    deployment = of_kind(build(folder), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == int(only_argument(IMAGE, "USER"))
    for container in containers(deployment):
        rights = container["securityContext"]
        assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"].keys() == {"requests", "limits"}
    (server,) = pod["containers"]
    variables = {variable["name"]: variable["value"] for variable in server["env"]}
    assert variables.keys() <= PROPERTIES.keys()
    assert variables["MODEL_DIR"] == environment(IMAGE)["MODEL_DIR"]
    assert pod["terminationGracePeriodSeconds"] > int(variables["CHARIOTEER_DRAIN_DELAY"]) + DRAIN


@every_overlay
def test_resources_select_the_pods_and_their_ports(folder: Path) -> None:
    documents = build(folder)
    deployment, service = of_kind(documents, "Deployment"), of_kind(documents, "Service")
    assert deployment["spec"]["template"]["metadata"]["labels"] == LABELS
    assert deployment["spec"]["selector"] == {"matchLabels": LABELS}
    assert service["spec"]["selector"] == service["metadata"]["labels"] == LABELS
    assert of_kind(documents, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": LABELS}
    for kind in ("PodDisruptionBudget", "ServiceMonitor"):
        assert of_kind(documents, kind)["spec"]["selector"] == {"matchLabels": LABELS}
    ports = {port["name"]: port["containerPort"] for port in containers(deployment)[-1]["ports"]}
    assert ports == {"http": HTTP, "grpc": GRPC}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports.keys()
    (rule,) = of_kind(documents, "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == {HTTP, GRPC}
    scaler = of_kind(documents, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert of_kind(documents, "PodDisruptionBudget")["spec"]["minAvailable"] < scaler["minReplicas"]


def test_each_overlay_provides_models_from_another_place() -> None:
    mounts: dict[str, Any] = {}
    for folder in overlays(KUBERNETES):
        deployment = of_kind(build(folder), "Deployment")
        volumes = deployment["spec"]["template"]["spec"].get("volumes", [])
        mounts[folder.name] = [kind for volume in volumes for kind in volume if kind != "name"]
        server = containers(deployment)[-1]
        assert [mount["mountPath"] for mount in server.get("volumeMounts", [])] == ["/mnt/models"][: len(volumes)]
        assert server["image"].startswith("charioteer-with-models:" if not volumes else "charioteer:")
    assert mounts == {"image": [], "pvc": ["persistentVolumeClaim"], "s3": ["emptyDir", "emptyDir"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", [*overlays(KUBERNETES), *overlays(KSERVE)], ids=lambda folder: f"{folder.parts[-3]}-{folder.name}"
)
def test_resources_match_the_schemas_of_kubernetes_and_kserve(folder: Path) -> None:
    import kubernetes_validate

    for document in build(folder):
        if document["apiVersion"].startswith("serving.kserve.io/"):
            assert list(kserve_errors(document)) == []
        # The operator of Prometheus has no package with its schemas.
        elif document["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(document, "1.34", strict=True)


@pytest.mark.parametrize("kind", ["ClusterServingRuntime", "InferenceService"])
def test_kserve_schemas_reject_unknown_fields_and_wrong_types(kind: str) -> None:
    wrong = of_kind(build(KSERVE / "overlays" / "standard"), kind)
    part = containers(wrong)[0] if kind == "ClusterServingRuntime" else wrong["spec"]["predictor"]["model"]
    part |= {"readyProbe": {}, "args": "serve"}
    errors = "\n".join(kserve_errors(wrong))
    for text in ("'readyProbe' was unexpected", 'args: "serve" is not of type "array"'):
        assert text in errors


def test_compose_publishes_the_ports_of_the_image_on_this_machine_only() -> None:
    (service,) = COMPOSE["services"].values()
    assert service["environment"].keys() <= PROPERTIES.keys()
    exposed = arguments_of(IMAGE, "EXPOSE")[0].split()
    for port in service["ports"]:
        address, outside, inside = port.split(":")
        assert (address, outside) == ("127.0.0.1", inside)
        assert inside in exposed
    assert (ROOT / "deploy" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    # A fresh clone has models, so that the first `up` serves some.
    (volume,) = service["volumes"]
    assert volume == f"${{MODELS:-../fixtures/models}}:{environment(IMAGE)['MODEL_DIR']}:ro"
    assert (ROOT / "deploy" / "../fixtures/models").resolve() == DEMO_MODELS
    assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN


def test_unit_stops_after_the_drain_timeout() -> None:
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    (delay,) = re.findall(r"^Environment=CHARIOTEER_DRAIN_DELAY=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert int(seconds) > DRAIN + int(delay)


@pytest.mark.slow
def test_unit_is_valid_and_sandboxed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    # Only the path of the program differs, because it must exist.
    unit = tmp_path / UNIT.name.replace("@", "@80")
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    verify = subprocess.run([analyze, "verify", unit], capture_output=True, text=True)
    assert (verify.returncode, verify.stderr) == (0, "")
    security = subprocess.run([analyze, "security", "--offline=true", unit], capture_output=True, text=True)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", security.stdout)
    assert level, security.stderr
    assert float(level[1]) < _MAX_EXPOSURE
