"""What the page is told of the server: models, parameters, ports, samples."""

from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.engine import Engine
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.protocols import protocols_beside
from app.server.asgi import create_app
from app.server.page.catalogue import describe_models
from app.server.page.page import Page
from app.server.page.samples import SAMPLES, read_sample, samples
from app.settings.model import ModelError, ModelSettings, ModelSource
from tasks.exchange.limits import Limits
from tasks.task import TaskType
from tests.support.stand_ins import STAND_INS, load_stand_in


def source(name: str, version: str = "1", **settings: Any) -> ModelSource:
    task_type = STAND_INS[name][0] if name in STAND_INS else None
    known = ModelSettings(task_type=task_type, **settings)
    return ModelSource(name=name, version=version, folder=Path(name), settings=known)


def registry_of(*sources: ModelSource) -> Registry:
    registry = Registry(sources)
    for each in sources:
        registry.load(each, load_stand_in)
    return registry


def test_a_model_is_described_as_it_answers() -> None:
    labels = ("cat", "dog")
    settings: dict[str, Any] = {"chariot_id": "ABC", "default": True, "parameters": {"score_threshold": 0.3, "x": 1}}
    (entry,) = describe_models(registry_of(source("detector", labels=labels, **settings)))
    assert (entry.name, entry.version, entry.latest, entry.state) == ("detector", "1", True, "READY")
    assert (entry.chariot_id, entry.default, entry.task_type) == ("abc", True, "OBJECT_DETECTION")
    assert (entry.streams, entry.explains) == (False, True)
    assert [(each.name, each.datatype, each.shape) for each in entry.inputs] == [("image", "BYTES", (-1,))]
    assert [each.name for each in entry.outputs] == ["num_detections", "labels", "scores", "boxes"]
    # The model's own defaults, over those of the task; what the task does not know is no parameter.
    assert entry.parameters["score_threshold"] == {"type": "number", "minimum": 0, "maximum": 1, "default": 0.3}
    assert entry.parameters["iou_threshold"]["default"] == 0.45
    assert "x" not in entry.parameters


def test_the_latest_version_that_is_ready_answers() -> None:
    def load(wanted: ModelSource) -> Any:
        if wanted.version == "10":
            raise ModelError("broken <b>")
        return load_stand_in(wanted)

    sources = [source("detector", version) for version in ("2", "9", "10")]
    registry = Registry(sources)
    for each in sources:
        registry.load(each, load)
    found = describe_models(registry)
    assert [(each.version, each.latest, each.state) for each in found] == [
        ("10", False, "UNAVAILABLE"),
        ("9", True, "READY"),
        ("2", False, "READY"),
    ]
    assert (found[0].reason, found[0].task_type, found[0].parameters) == ("broken <b>", "", {})


@pytest.mark.parametrize("name", sorted(STAND_INS))
def test_every_task_has_its_parameters(name: str) -> None:
    (entry,) = describe_models(registry_of(source(name)))
    assert entry.task_type == STAND_INS[name][0]
    assert all("default" in each for each in entry.parameters.values())
    assert ("score_threshold" in entry.parameters) == (
        "iou_threshold" in entry.parameters or "labels" in entry.parameters
    )


def test_nothing_is_described_of_no_models() -> None:
    assert describe_models(Registry([])) == []


@pytest.fixture
def client() -> Any:
    sources = [source("detector")]
    registry = registry_of(*sources)
    engine = Engine(Repository(registry, lambda: sources, load_stand_in), [], Limits(), workers=2)
    page = Page(engine, chariot_protocol="chariot-v2")
    with TestClient(
        create_app(engine, protocols_beside("chariot-v2"), CollectorRegistry(), 2_000_000, page=page)
    ) as it:
        yield it


def test_the_page_gets_all_of_it(client: Any) -> None:
    response = client.get("/page/models.json")
    assert response.headers["cache-control"] == "no-cache"
    found = response.json()
    assert found["chariot_protocol"] == "chariot-v2"
    assert found["ports"] == {"grpc": None, "tensorflow_serving": None}
    assert [each["name"] for each in found["models"]] == ["detector"]
    assert found["samples"][0] == {"name": "scene.jpg", "task_types": ["OBJECT_DETECTION", "IMAGE_SEGMENTATION"]}


def test_samples_are_pictures(client: Any) -> None:
    for each in samples():
        response = client.get(f"/page/samples/{each.name}")
        assert response.headers["content-type"] == "image/jpeg"
        assert response.content == (SAMPLES / each.name).read_bytes()


@pytest.mark.parametrize("name", ["truth.json", "none.jpg", "..%2fimages%2fscene.jpg", "%2e%2e", "scene.jpg%00"])
def test_nothing_else_is_a_sample(client: Any, name: str) -> None:
    assert client.get(f"/page/samples/{name}").status_code == 404


def test_without_the_repository_there_are_no_samples(tmp_path: Path) -> None:
    assert samples(tmp_path) == []
    assert read_sample("scene.jpg", tmp_path) is None
    (tmp_path / "shape.jpg").write_bytes(b"\xff\xd8")
    assert [each.name for each in samples(tmp_path)] == ["shape.jpg"]
    file = read_sample("shape.jpg", tmp_path)
    assert file is not None
    assert (file.content, file.media_type) == (b"\xff\xd8", "image/jpeg")


def test_every_task_of_pictures_has_a_sample_to_begin_with() -> None:
    of_pictures = {each for each in TaskType if each.startswith(("IMAGE", "OBJECT", "ORIENTED"))}
    assert {task for each in samples() for task in each.task_types} == of_pictures
