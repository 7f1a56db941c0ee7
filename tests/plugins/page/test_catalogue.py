"""Data for the web page: models, parameters, ports and samples."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient

from app.core.engine.models.registry import Registry
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import DEMO_IMAGES
from app.plugins.page.catalogue import ModelEntry, describe_models
from app.plugins.page.page_files import samples
from tasks.task import TaskType
from tests.plugins.page.pages import app_of_page, model_source
from tests.support.models.fake_models import FAKE_MODELS, load_fake_model


def entry_of(source: ModelSource, load: Callable[[ModelSource], Any] = load_fake_model) -> ModelEntry:
    registry = Registry([source])
    registry.load(source, load)
    (entry,) = describe_models(registry)
    return entry


def test_model_is_described_with_tensors_and_parameters() -> None:
    labels = ("cat", "dog")
    settings: dict[str, Any] = {"chariot_id": "ABC", "default": True, "parameters": {"score_threshold": 0.3, "x": 1}}
    entry = entry_of(model_source("detector", labels=labels, **settings))
    assert (entry.name, entry.version, entry.latest, entry.state) == ("detector", "1", True, "READY")
    assert (entry.chariot_id, entry.default, entry.task_type) == ("abc", True, "OBJECT_DETECTION")
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in entry.inputs] == [("image", "BYTES", (-1,))]
    assert [tensor.name for tensor in entry.outputs] == ["num_detections", "labels", "scores", "boxes"]
    # The model's defaults override those of the task; names unknown to the task are left out.
    assert entry.parameters["score_threshold"] == {"type": "number", "minimum": 0, "maximum": 1, "default": 0.3}
    assert entry.parameters["iou_threshold"]["default"] == 0.45
    assert "x" not in entry.parameters


def test_latest_is_the_newest_version_that_is_ready() -> None:
    def load(candidate: ModelSource) -> Any:
        if candidate.version == "10":
            raise ModelError("broken <b>")
        return load_fake_model(candidate)

    sources = [model_source("detector", version) for version in ("2", "9", "10")]
    registry = Registry(sources)
    for source in sources:
        registry.load(source, load)
    models = describe_models(registry)
    states = [(model.version, model.latest, model.state) for model in models]
    assert states == [("10", False, "UNAVAILABLE"), ("9", True, "READY"), ("2", False, "READY")]
    assert (models[0].reason, models[0].task_type, models[0].parameters) == ("broken <b>", "", {})


@pytest.mark.parametrize("name", sorted(FAKE_MODELS))
def test_every_task_lists_its_parameters_with_defaults(name: str) -> None:
    entry = entry_of(model_source(name))
    assert entry.task_type == FAKE_MODELS[name][0]
    assert all("default" in parameter for parameter in entry.parameters.values())
    assert ("score_threshold" in entry.parameters) == bool({"iou_threshold", "labels"} & {*entry.parameters})


@pytest.mark.parametrize("open_vocabulary", [False, True])
def test_candidate_labels_are_listed_for_open_vocabularies_only(open_vocabulary: bool) -> None:
    def load(candidate: ModelSource) -> Any:
        servable: Any = load_fake_model(candidate)
        servable.description = msgspec.structs.replace(servable.description, open_vocabulary=open_vocabulary)
        return servable

    entry = entry_of(model_source("detector"), load)
    assert ("candidate_labels" in entry.parameters) == open_vocabulary


@pytest.fixture(scope="module")
def client() -> Any:
    with TestClient(app_of_page("detector", chariot_protocol="chariot-v2")) as opened:
        yield opened


def test_models_json_has_protocol_ports_models_and_samples(client: Any) -> None:
    response = client.get("/page/models.json")
    assert response.headers["cache-control"] == "no-cache"
    page_data = response.json()
    assert page_data["chariot_protocol"] == "chariot-v2"
    assert (page_data["ports"], page_data["admin"]) == ({}, True)
    assert [model["name"] for model in page_data["models"]] == ["detector"]
    tasks, shown = ["OBJECT_DETECTION", "IMAGE_SEGMENTATION"], ["face", "person"]
    assert page_data["samples"][0] == {"name": "portrait.jpg", "task_types": tasks, "shows": shown}


def test_samples_are_served_as_jpeg(client: Any) -> None:
    for sample in samples():
        response = client.get(f"/page/samples/{sample.name}")
        assert response.headers["content-type"] == "image/jpeg"
        assert response.content == (DEMO_IMAGES / sample.name).read_bytes()


@pytest.mark.parametrize("name", ["truth.json", "none.jpg", "..%2fimages%2fscene.jpg", "%2e%2e", "scene.jpg%00"])
def test_unknown_sample_is_404(client: Any, name: str) -> None:
    assert client.get(f"/page/samples/{name}").status_code == 404


def test_every_image_task_has_a_sample() -> None:
    image_task_types = {task_type for task_type in TaskType if task_type.takes in ("image", "question")}
    assert {task for sample in samples() for task in sample.task_types} == image_task_types
