"""Models that cannot answer for a while, and say so."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from app.engine.registry import ModelState, Registry
from app.engine.servable import BoundServable, Servable
from app.settings.model import ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tests.support.stand_ins import load_stand_in


class Faint:
    """Answers nobody while it is in trouble."""

    def __init__(self) -> None:
        self.trouble = ""

    def __call__(self, inputs: Sequence[object], /) -> Sequence[Any]:
        return inputs


def registry(model: Faint) -> Registry:
    """One detector of two versions, of which the later one is `model`."""

    def load(source: ModelSource) -> Servable:
        made = cast("BoundServable[Any, Any]", load_stand_in(source))
        if source.version == "1":
            return made
        return BoundServable(made.task, model, made.description, {}).batched(4, 0.001)

    sources = [ModelSource(name="detector", version=each, folder=Path("/srv/models/detector")) for each in "12"]
    made = Registry(sources)
    for source in sources:
        made.load(source, load)
    return made


def test_it_is_not_ready_for_as_long_as_it_says() -> None:
    model = Faint()
    made = registry(model)
    assert made.unready == ""
    model.trouble = "It fell at /srv/models/detector/model.onnx"
    assert made.unready == "detector/2: It fell at model.onnx"
    later, earlier = made.versions("detector")
    assert (later.state, later.servable, earlier.state) == (ModelState.UNAVAILABLE, None, ModelState.READY)
    assert (later.reason, later.detail) == ("It fell at model.onnx", model.trouble)
    with pytest.raises(InferenceError) as caught:
        made.find("detector", "2")
    assert caught.value.kind is ErrorKind.MODEL_NOT_READY
    assert caught.value.message == "Model 'detector' version '2' is not ready: It fell at model.onnx"
    model.trouble = ""
    assert made.unready == ""
    assert made.find("detector").source.version == "2"


def test_another_version_answers_meanwhile() -> None:
    model = Faint()
    made = registry(model)
    model.trouble = "It fell"
    assert made.find("detector").source.version == "1"


def test_a_registration_that_a_request_holds_is_not_altered() -> None:
    model = Faint()
    made = registry(model)
    held = made.find("detector")
    model.trouble = "It fell"
    assert held.ready_servable() is held.servable
    assert made.registrations[1].servable is None
    assert held.state is ModelState.READY


def test_a_model_that_says_nothing_of_the_kind_is_never_in_trouble() -> None:
    servable = load_stand_in(ModelSource(name="detector", version="1", folder=Path("m")))
    assert servable.trouble == ""
