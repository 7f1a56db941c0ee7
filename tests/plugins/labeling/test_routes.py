"""The ML backend of Label Studio beside its golden cases: records, versions, keys, and requests of Label Studio."""

import base64
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.models.registry import ModelState, Registration
from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.asgi import create_app
from app.plugins.labeling.plan import make_plan
from tasks.inference.limits import Limits
from tasks.task import TaskType
from tests.plugins.labeling.conftest import Site
from tests.support.data.images import encode_base64, encode_image, rectangle, rotated_rectangle
from tests.support.models.fake_models import FAKE_MODELS, LABELS, stand_in_metadata
from tests.support.models.scripted_model import EventRecorder
from tests.support.rejection import rejects
from tests.support.servers.apps import model_source
from tests.support.servers.auth_apps import INFER_KEY, READ_KEY, access_with_keys, bearer_header
from tests.support.servers.grpc_server import build_engine

IMAGE = f"data:image/png;base64,{encode_base64(encode_image(rectangle(64, 48, (16, 12, 48, 36))))}"
"""A red rectangle: a quarter to three quarters of each side."""
TEXTS = "".join(f'<Label value="{label}"/>' for label in LABELS)


def config(tag: str, attributes: str = "", labels: str = TEXTS) -> str:
    control = f'<{tag} name="tag" toName="img" {attributes}>{labels}</{tag}>'
    return f'<View><Image name="img" value="$image"/>{control}</View>'


def tasks(*images: object) -> list[dict[str, Any]]:
    return [{"id": index + 7, "data": {"image": image}, "annotations": []} for index, image in enumerate(images)]


class Backend:
    def __init__(self, access: HttpAccess | None = None, **settings: Any) -> None:
        self.observer = EventRecorder()
        engine = build_engine(("detector", "oriented"), observers=[self.observer], limits=Limits(max_inputs=4))
        served = registry().protocols(registry().settings(label_studio=True, **settings)).http
        protocols = [protocol for protocol in served if protocol.name == "label-studio"]
        self.app: Litestar = create_app(engine, protocols, CollectorRegistry(), 2_000_000, access=access)

    def client(self) -> TestClient[Litestar]:
        return TestClient(self.app)


@pytest.fixture(scope="module")
def backend() -> Backend:
    return Backend()


@pytest.fixture(scope="module")
def client(backend: Backend) -> Generator[TestClient[Litestar]]:
    with backend.client() as client:
        yield client


def predict(client: TestClient[Litestar], model: str, label_config: str, *images: object) -> Any:
    # As Label Studio sends it.
    params = {"login": "user", "password": "secret", "context": None}
    body = {"tasks": tasks(*images), "project": "12.1699999999", "label_config": label_config, "params": params}
    return client.post(f"/label-studio/{model}/predict", json=body)


def result_of(client: TestClient[Litestar], model: str, label_config: str, image: object = IMAGE) -> list[Any]:
    response = predict(client, model, label_config, image)
    assert response.status_code == 200, response.text
    (prediction,) = response.json()["results"]
    return prediction["result"]


def test_inference_is_recorded_with_task_and_without_passwords(backend: Backend, client: TestClient[Litestar]) -> None:
    result_of(client, "detector", config("RectangleLabels"))
    context = backend.observer.events[-1]
    (metadata,) = context.metadata.of()
    entries = {entry.key: entry.value for entry in metadata.entries}
    assert entries == {"label_studio_task": "7", "label_studio_project": "12.1699999999"}
    assert context.protocol == "label-studio"
    assert "secret" not in repr(context.request)


def setup(client: TestClient[Litestar], model: str, schema: str, **members: object) -> Any:
    body = {"project": "12.1", "schema": schema, "hostname": "http://attacker.test", "access_token": "t", **members}
    return client.post(f"/label-studio/{model}/setup", json=body)


def test_version_changes_with_what_changes_predictions(client: TestClient[Litestar]) -> None:
    def version(*arguments: str) -> str:
        answer = setup(client, "detector", config("RectangleLabels", *arguments), extra_params="{}")
        return answer.json()["model_version"]

    changed = [version(), version('model_score_threshold="0.2"'), version("", TEXTS.replace('"red"', '"Red"'))]
    assert len(set(changed)) == 3
    assert version() == changed[0]
    assert changed[0].startswith("detector:1-")
    (prediction,) = predict(client, "detector", config("RectangleLabels"), IMAGE).json()["results"]
    assert prediction["model_version"] == changed[0]


RECTANGLES = config("RectangleLabels")


def test_unusable_configuration_is_rejected_with_a_reason_in_the_log(
    client: TestClient[Litestar], caplog: pytest.LogCaptureFixture
) -> None:
    response = setup(client, "detector", f"<View>{' ' * (1 << 20)}</View>")
    error = "schema: Expected at most 1,048,576 characters"
    assert (response.status_code, error in response.json()["error"]) == (413, True)
    # Label Studio shows its users only the status.
    assert error in caplog.text


def test_model_without_labels_needs_those_of_the_project() -> None:
    servable = Servable(FAKE_MODELS["detector"][1], list, stand_in_metadata(TaskType.OBJECT_DETECTION), {})
    registration = Registration(source=model_source("detector"), state=ModelState.READY, servable=servable)
    with rejects("Expected labels in the project: 'detector' has none of its own", "schema"):
        make_plan(registration, config("RectangleLabels", labels=""), "schema")


def test_too_many_tasks_are_rejected(client: TestClient[Litestar]) -> None:
    response = predict(client, "detector", RECTANGLES, *[IMAGE] * 5)
    assert (response.status_code, "Expected at most 4 tasks" in response.text) == (413, True)


def test_password_of_the_connection_is_a_key_of_the_server(tmp_path: Path) -> None:
    with Backend(HttpAccess(access_with_keys(tmp_path))).client() as client:
        assert client.get("/label-studio/detector/health").status_code == 200
        statuses: list[int] = []
        for key in (INFER_KEY, READ_KEY, "other"):
            client.headers["Authorization"] = f"Basic {base64.b64encode(f'any:{key}'.encode()).decode()}"
            statuses.append(setup(client, "detector", config("RectangleLabels")).status_code)
        assert statuses == [200, 403, 401]
        client.headers.update(bearer_header(INFER_KEY))
        # Events may change truths.
        assert client.post("/label-studio/detector/webhook", json={"action": "START_TRAINING"}).status_code == 403


def test_requests_that_label_studio_1_23_sends_are_answered(site: Site) -> None:
    # A server recorded them: a backend is added, one image is predicted and annotated, and the annotation deleted.
    recorded: list[Any] = json.loads((Path(__file__).parent / "label_studio_requests.json").read_text())
    image: str = recorded[2]["body"]["tasks"][0]["data"]["image"]
    site.answers[image] = 200, {}, encode_image(rectangle())
    served = Backend(label_studio_url=site.url)
    with served.client() as client:
        answers = [
            client.request(request["method"], request["path"], headers=request["headers"], json=request["body"])
            for request in recorded
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 201, 201, 201]
    _, setup, prediction, interactive, *_ = [answer.json() for answer in answers]
    for answer in (prediction, interactive):
        ((region,),) = [result["result"] for result in answer["results"]]
        assert region["value"]["rectanglelabels"] == ["Star"]
        assert answer["results"][0]["model_version"] == setup["model_version"]
    assert "scene.jpg" in [entry.value for data in served.observer.events[0].metadata.of() for entry in data.entries]
    # The server and the key that the project names are not used.
    assert [path for path, _ in site.requests] == [image, image]


def test_rotation_turns_about_a_corner_inside_the_image(client: TestClient[Litestar]) -> None:
    for degrees in range(-80, 90, 20):
        pixels = rotated_rectangle(200, 120, (90, 60), (70, 30), np.radians(degrees))
        image = f"data:image/png;base64,{encode_base64(encode_image(pixels))}"
        (region,) = result_of(client, "oriented", config("RectangleLabels"), image)
        (polygon,) = result_of(client, "oriented", config("PolygonLabels"), image)
        value = region["value"]
        assert all(0 <= value[name] <= 100 for name in ("x", "y", "width", "height"))
        assert 0 <= value["rotation"] < 360
        sides = value["width"] * 2, value["height"] * 1.2
        angle = np.radians(value["rotation"])
        corner = np.array([value["x"] * 2, value["y"] * 1.2])
        along = np.array([np.cos(angle), np.sin(angle)]) * sides[0]
        across = np.array([-np.sin(angle), np.cos(angle)]) * sides[1]
        corners = sorted(np.round([corner, corner + along, corner + along + across, corner + across], 3).tolist())
        assert np.allclose(corners, sorted([x * 2, y * 1.2] for x, y in polygon["value"]["points"]), atol=2e-3)
