"""Which model a request means."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.engine.registry import ModelState, Registry, version_order
from app.engine.servable import Servable
from app.settings.model import ModelError, ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.task import TaskType
from tests.support.stand_ins import load_stand_in


def source(name: str = "detector", version: str = "1", **settings: Any) -> ModelSource:
    declared = ModelSettings(task_type=TaskType.OBJECT_DETECTION, **settings)
    return ModelSource(name=name, version=version, folder=Path(name), settings=declared)


def stand_in(of: ModelSource) -> Servable:
    return load_stand_in(source("detector", of.version))


def broken(_: ModelSource) -> Servable:
    raise ModelError("model.onnx is truncated")


def registry(*sources: ModelSource, loaded: Sequence[str] = ()) -> Registry:
    """Of the `sources`, those whose version is in `loaded` are ready."""
    made = Registry(sources)
    for each in sources:
        if each.version in loaded:
            made.load(each, stand_in)
    return made


def refusal(call: Any, *arguments: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        call(*arguments)
    return caught.value


def test_versions_are_ordered_as_numbers() -> None:
    shuffled = ["10", "latest", "1.10", "9", "v2", "1.9", "1", "beta", "1.9.1"]
    assert sorted(shuffled, key=version_order) == ["beta", "latest", "1", "1.9", "1.9.1", "1.10", "v2", "9", "10"]


@pytest.mark.parametrize(("versions", "latest"), [(["9", "10"], "10"), (["1.9", "1.10"], "1.10"), (["beta", "1"], "1")])
def test_the_latest_version_is_meant_when_none_is_named(versions: list[str], latest: str) -> None:
    for order in (versions, versions[::-1]):
        made = registry(*(source(version=each) for each in order), loaded=versions)
        assert made.find("detector").source.version == latest


def test_a_named_version_is_found() -> None:
    made = registry(source(version="1"), source(version="2"), loaded=["1", "2"])
    assert made.find("detector", "1").source.version == "1"


def test_the_latest_that_is_ready_answers_while_a_newer_one_loads_or_has_failed() -> None:
    made = registry(source(version="1"), source(version="2"), source(version="3"), loaded=["1", "2"])
    assert made.find("detector").source.version == "2"
    made.load(source(version="3"), broken)
    assert made.find("detector").source.version == "2"
    made.load(source(version="3"), stand_in)
    assert made.find("detector").source.version == "3"


def test_a_version_that_is_named_is_not_replaced_by_another() -> None:
    made = registry(source(version="1"), source(version="2"), loaded=["1"])
    error = refusal(made.find, "detector", "2")
    assert error.kind is ErrorKind.MODEL_NOT_READY
    assert error.message == "Model 'detector' version '2' is not ready: not loaded yet"


def test_states_and_reasons() -> None:
    made = registry(source())
    (loading,) = made.registrations
    assert (loading.state, loading.servable, made.unready) == (ModelState.LOADING, None, "detector/1: not loaded yet")
    failed = made.load(source(), broken)
    assert (failed.state, failed.reason, failed.servable) == (ModelState.UNAVAILABLE, "model.onnx is truncated", None)
    assert made.registrations == [failed]
    ready = made.load(source(), stand_in)
    assert (ready.state, ready.reason, made.unready) == (ModelState.READY, "", "")
    assert ready.servable is not None


def test_whatever_a_framework_raises_is_recorded() -> None:
    def crash(_: ModelSource) -> Servable:
        raise KeyError("graph")

    failed = registry(source()).load(source(), crash)
    assert failed.state is ModelState.UNAVAILABLE
    assert "KeyError" in failed.reason


def test_a_registration_handed_out_is_not_altered_by_a_later_load() -> None:
    made = registry(source())
    before = made.registrations[0]
    made.load(source(), stand_in)
    assert before.state is ModelState.LOADING
    assert made.registrations[0].state is ModelState.READY


def test_a_server_without_models_is_not_ready() -> None:
    assert Registry([]).unready
    assert refusal(Registry([]).default_name).kind is ErrorKind.MODEL_NOT_FOUND


def test_one_model_that_is_not_ready_keeps_the_server_from_being_ready() -> None:
    assert registry(source(version="1"), source(version="2"), loaded=["1"]).unready


def test_unknown_names_and_versions_list_what_there_is() -> None:
    made = registry(source("b"), source("a", "2"), loaded=["1", "2"])
    name, version = refusal(made.find, "c"), refusal(made.find, "a", "9")
    assert (name.kind, name.message) == (ErrorKind.MODEL_NOT_FOUND, "Model 'c' is not known. This server has: a, b")
    assert (version.kind, version.message) == (ErrorKind.MODEL_NOT_FOUND, "Model 'a' has no version '9'. It has: 2")


def test_chariot_ids_are_declared_or_the_name_in_lower_case() -> None:
    made = registry(source("Cars"), source("boats", chariot_id="2NxTsA3"))
    assert made.name_for_chariot("cars") == "Cars"
    assert made.name_for_chariot("CARS") == "Cars"
    assert made.name_for_chariot("2nxtsa3") == "boats"
    error = refusal(made.name_for_chariot, "boats")
    assert (error.kind, error.message) == (
        ErrorKind.MODEL_NOT_FOUND, "No model has the Chariot id 'boats'. This server has: 2nxtsa3, cars",
    )  # fmt: skip


def test_a_path_means_a_chariot_id_before_a_name() -> None:
    made = registry(source("boats"), source("m-boats"), source("m-cars"))
    assert [made.name_for_path(each) for each in ("boats", "m-boats", "m-m-boats", "m-cars")] == [
        "boats", "boats", "m-boats", "m-cars",
    ]  # fmt: skip
    assert refusal(made.name_for_path, "m-planes").kind is ErrorKind.MODEL_NOT_FOUND
    assert made.name_for_path("planes") == "planes"


def test_the_only_model_answers_to_every_chariot_id_whatever_its_versions() -> None:
    made = registry(source(version="1"), source(version="2"))
    assert made.name_for_chariot("anything") == "detector"
    assert made.default_name() == "detector"


def test_the_default_is_the_model_that_says_so() -> None:
    assert registry(source("a"), source("b", default=True)).default_name() == "b"
    error = refusal(registry(source("a"), source("b")).default_name)
    assert error.kind is ErrorKind.MODEL_NOT_FOUND
    assert error.message.endswith("Choose one of: /v2/models/m-a/infer, /v2/models/m-b/infer")


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ([source(), source()], "Two models are called 'detector' version '1'"),
        ([source("A"), source("a")], "'A' and 'a' share the Chariot id 'a'"),
        ([source("a", chariot_id="X"), source("b", chariot_id="x")], "share the Chariot id 'x'"),
        ([source("a"), source("b", chariot_id="A")], "share the Chariot id 'a'"),
        ([source("a", default=True), source("b", default=True)], "Only one model can be the default, but a, b"),
    ],
)
def test_models_that_cannot_be_told_apart_are_refused(sources: list[ModelSource], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        Registry(sources)


def test_versions_of_one_model_share_its_id_and_its_default() -> None:
    made = registry(
        source(version="1", default=True, chariot_id="x"), source(version="2", default=True, chariot_id="x")
    )
    assert made.name_for_chariot("x") == "detector"


def test_registrations_are_sorted_by_name_and_version() -> None:
    made = registry(source("b"), source("a", "10"), source("a", "9"))
    assert [(each.source.name, each.source.version) for each in made.registrations] == [
        ("a", "9"),
        ("a", "10"),
        ("b", "1"),
    ]
