"""Models that report that they are unavailable for a while."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.engine.models.registry import ModelState, Registry
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from tasks.inference.error import ErrorKind, InferenceError
from tests.support.models.fake_models import load_fake_model


class UnavailableModel:
    """Report trouble when the test sets it."""

    def __init__(self) -> None:
        self.unavailable_reason = ""

    def __call__(self, inputs: Sequence[object], /) -> Sequence[Any]:
        return inputs


def registry_of(model: UnavailableModel) -> Registry:
    """Return a registry of a detector with two versions; the later one is `model`."""

    def load(source: ModelSource) -> Servable:
        servable = load_fake_model(source)
        if source.version == "1":
            return servable
        return Servable(servable.task, model, servable.description, {}).batched(4, 0.001)

    sources = [ModelSource(name="detector", version=version, folder=Path("/srv/models/detector")) for version in "12"]
    registry = Registry(sources)
    for source in sources:
        registry.load(source, load)
    return registry


def test_model_with_trouble_is_not_ready_until_it_recovers() -> None:
    model = UnavailableModel()
    registry = registry_of(model)
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
    with pytest.raises(InferenceError) as caught:
        registry.find("detector", "2")
    assert caught.value.kind is ErrorKind.MODEL_NOT_READY
    assert caught.value.message == "Model 'detector' version '2' is not ready: It fell at model.onnx"
    model.unavailable_reason = ""
    assert registry.not_ready_reason == ""
    assert registry.find("detector").source.version == "2"
