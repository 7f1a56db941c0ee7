"""Finding the model of a request."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.engine.models.registry import ModelState, Registry, version_sort_key
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSettings, ModelSource
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import TaskType
from tests.support.models.fake_models import load_fake_model


def source(name: str = "detector", version: str = "1", **settings: Any) -> ModelSource:
    declared = ModelSettings(task_type=TaskType.OBJECT_DETECTION, **settings)
    return ModelSource(name=name, version=version, folder=Path(name), settings=declared)


def load_detector(requested: ModelSource) -> Servable:
    return load_fake_model(source("detector", requested.version))


def fail_to_load(_: ModelSource) -> Servable:
    raise ModelError("model.onnx is truncated")


def registry_of(*sources: ModelSource, loaded: Sequence[str] = ()) -> Registry:
    """Return a registry of `sources` where the versions in `loaded` are ready."""
    registry = Registry(sources)
    for model_source in sources:
        if model_source.version in loaded:
            registry.load(model_source, load_detector)
    return registry


def rejection(call: Any, *arguments: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        call(*arguments)
    return caught.value


def test_versions_are_ordered_as_numbers() -> None:
    shuffled = ["10", "latest", "1.10", "9", "v2", "1.9", "1", "beta", "1.9.1"]
    assert sorted(shuffled, key=version_sort_key) == ["beta", "latest", "1", "1.9", "1.9.1", "1.10", "v2", "9", "10"]


@pytest.mark.parametrize(("count", "end"), [(10, "m09"), (11, "m09 and 1 more"), (300, "m09 and 290 more")])
def test_unknown_model_error_lists_at_most_ten_models(count: int, end: str) -> None:
    registry = registry_of(*(source(name=f"m{number:02}") for number in range(count)))
    names = ", ".join(f"m{number:02}" for number in range(9))
    assert rejection(registry.find, "x").message == f"Model 'x' is not known. This server has: {names}, {end}"


def test_find_returns_the_requested_or_the_latest_ready_version() -> None:
    registry = registry_of(source(version="1"), source(version="2"), source(version="3"), loaded=["1", "2"])
    assert registry.find("detector", "1").source.version == "1"
    assert registry.find("detector").source.version == "2"
    registry.load(source(version="3"), fail_to_load)
    assert registry.find("detector").source.version == "2"
    registry.load(source(version="3"), load_detector)
    assert registry.find("detector").source.version == "3"


def test_load_sets_state_and_reason() -> None:
    registry = registry_of(source())
    (loading,) = registry.registrations
    assert (loading.state, loading.servable) == (ModelState.LOADING, None)
    assert registry.not_ready_reason == "detector/1: not loaded yet"
    failed = registry.load(source(), fail_to_load)
    assert (failed.state, failed.reason, failed.servable) == (ModelState.UNAVAILABLE, "model.onnx is truncated", None)
    assert registry.registrations == [failed]
    ready = registry.load(source(), load_detector)
    assert (loading.state, failed.state) == (ModelState.LOADING, ModelState.UNAVAILABLE)
    assert (ready.state, ready.reason, registry.not_ready_reason) == (ModelState.READY, "", "")
    assert ready.servable is not None


def test_registry_without_models_is_not_ready() -> None:
    assert Registry([]).not_ready_reason
    assert rejection(Registry([]).default_name).kind is ErrorKind.MODEL_NOT_FOUND


def test_unready_reason_names_the_version_that_answers_instead_of_the_latest() -> None:
    registry = registry_of(source(version="1"), source(version="2"), source(version="3"))
    registry.load(source(version="1"), load_detector)
    registry.load(source(version="3"), fail_to_load)
    registry.load(source(version="2"), load_detector)
    assert registry.not_ready_reason == "detector/3: model.onnx is truncated (version 2 answers instead)"
    registry = registry_of(source(version="1"), source(version="2"), loaded=["2"])
    assert registry.not_ready_reason == "detector/1: not loaded yet"


def test_unknown_name_or_version_error_lists_the_existing_ones() -> None:
    registry = registry_of(source("b"), source("a", "10"), source("a", "2"), loaded=["1", "2", "10"])
    name, version = rejection(registry.find, "c"), rejection(registry.find, "a", "9")
    assert (name.kind, name.message) == (ErrorKind.MODEL_NOT_FOUND, "Model 'c' is not known. This server has: a, b")
    assert (version.kind, version.message) == (ErrorKind.MODEL_NOT_FOUND, "Model 'a' has no version '9'. It has: 2, 10")


def test_chariot_id_is_declared_or_the_lower_case_name() -> None:
    registry = registry_of(source("Cars"), source("boats", chariot_id="2NxTsA3"))
    assert registry.name_for_path("m-cars") == "Cars"
    assert registry.name_for_path("m-CARS") == "Cars"
    assert registry.name_for_path("m-2nxtsa3") == "boats"
    error = rejection(registry.name_for_path, "m-boats")
    assert (error.kind, error.message) == (
        ErrorKind.MODEL_NOT_FOUND, "No model has the Chariot id 'boats'. This server has: 2nxtsa3, cars",
    )  # fmt: skip


def test_path_is_read_as_chariot_id_before_model_name() -> None:
    registry = registry_of(source("boats"), source("m-boats"), source("m-cars"))
    assert [registry.name_for_path(path) for path in ("boats", "m-boats", "m-m-boats", "m-cars")] == [
        "boats", "boats", "m-boats", "m-cars",
    ]  # fmt: skip
    assert rejection(registry.name_for_path, "m-planes").kind is ErrorKind.MODEL_NOT_FOUND
    assert registry.name_for_path("planes") == "planes"


def test_single_model_matches_every_chariot_id() -> None:
    declared: dict[str, Any] = {"default": True, "chariot_id": "x"}
    registry = registry_of(source(version="1", **declared), source(version="2", **declared))
    assert registry.name_for_path("m-anything") == "detector"
    assert registry.default_name() == "detector"


def test_default_model_is_the_one_marked_as_default() -> None:
    assert registry_of(source("a"), source("b", default=True)).default_name() == "b"
    error = rejection(registry_of(source("a"), source("b")).default_name)
    assert error.kind is ErrorKind.MODEL_NOT_FOUND
    assert error.message.endswith("Choose one of: /v2/models/m-a/infer, /v2/models/m-b/infer")


@pytest.mark.parametrize(
    ("sources", "error_text"),
    [
        ([source(), source()], "Two models are called 'detector' version '1': detector and detector; rename"),
        ([source("A"), source("a")], "'A' and 'a' share the Chariot id 'a'"),
        ([source("a", chariot_id="X"), source("b", chariot_id="x")], "share the Chariot id 'x'"),
        ([source("a"), source("b", chariot_id="A")], "share the Chariot id 'a'"),
        ([source("a", default=True), source("b", default=True)], "Only one model can be the default, but a, b"),
    ],
)
def test_conflicting_models_are_rejected(sources: list[ModelSource], error_text: str) -> None:
    with pytest.raises(ModelError, match=error_text):
        Registry(sources)


class UnavailableModel:
    """Report the reason that the test sets."""

    unavailable_reason = ""

    def __call__(self, inputs: Sequence[object], /) -> Sequence[Any]:
        return inputs


def test_model_with_trouble_is_not_ready_until_it_recovers() -> None:
    model = UnavailableModel()

    def load(source: ModelSource) -> Servable:
        servable = load_fake_model(source)
        return Servable(servable.task, model, servable.description, {})

    sources = [ModelSource(name="detector", version=version, folder=Path("/srv/models/detector")) for version in "12"]
    registry = registry_of(*sources, loaded=["1"])
    registry.load(sources[1], load)
    registration = registry.find("detector")
    assert registry.not_ready_reason == ""
    model.unavailable_reason = "It fell at /srv/models/detector/model.onnx"
    assert registry.not_ready_reason == "detector/2: It fell at model.onnx (version 1 answers instead)"
    later, earlier = registry.versions("detector")
    assert (later.state, later.servable, earlier.state) == (ModelState.UNAVAILABLE, None, ModelState.READY)
    assert (later.reason, later.detail) == ("It fell at model.onnx", model.unavailable_reason)
    assert registry.find("detector").source.version == "1"
    # A request that has found the model keeps it.
    assert registration.ready_servable() is registration.servable
    assert registration.state is ModelState.READY
    error = rejection(registry.find, "detector", "2")
    assert error.kind is ErrorKind.MODEL_NOT_READY
    assert error.message == "Model 'detector' version '2' is not ready: It fell at model.onnx"
    model.unavailable_reason = ""
    assert registry.not_ready_reason == ""
    assert registry.find("detector").source.version == "2"
