"""Test JPEGs decoded at a fraction of their size; answers stay in pixels of the full image."""

import pickle
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from app.core.engine.models.servable import Servable
from app.core.engine.remote import Binding
from app.core.settings.model import ModelSettings, PreprocessingSettings
from tasks.inference.limits import Limits
from tasks.inference.tensor import BytesTensor
from tasks.vision.request import ImageItem
from tests.support.data.requests import file_input, predict, request

FIXTURES = Path(__file__).parents[5] / "fixtures"


def servable(name: str, *, reduced: bool) -> Servable:
    (source,) = model_at(FIXTURES / "models" / name)
    settings = ModelSettings(preprocessing=PreprocessingSettings(reduced_decode=reduced))
    return load(msgspec.structs.replace(source, settings=settings))


def image_input(file_name: str) -> BytesTensor:
    return file_input((FIXTURES / "images" / file_name).read_bytes())


def records(name: str, file_name: str, *, reduced: bool) -> list[dict[str, Any]]:
    (prediction,) = predict(servable(name, reduced=reduced), image_input(file_name))
    return msgspec.to_builtins(prediction.records())


def box(record: dict[str, Any]) -> list[float]:
    return [record[name] for name in ("xmin", "ymin", "xmax", "ymax")]


def test_boxes_are_in_pixels_of_full_image() -> None:
    full, small = (records("detector", "scene.jpg", reduced=reduced) for reduced in (False, True))
    assert [record["label"] for record in small] == [record["label"] for record in full]
    for full_record, small_record in zip(full, small, strict=True):
        np.testing.assert_allclose(box(full_record), box(small_record), atol=6)
        assert abs(full_record["score"] - small_record["score"]) < 0.1
    assert [box(record) for record in small] != [box(record) for record in full]


def test_image_is_not_reduced_below_model_input_size() -> None:
    model, sent = servable("detector", reduced=True), request(image_input("scene.jpg"))
    for result in (model.predict(sent, Limits()), *model.predict_each(sent, Limits())):
        (sample,) = result.samples
        image = cast("ImageItem[Any]", sample.item).image
        assert image.pixels.shape[:2] == (240, 320)
        assert (image.height, image.width) == (480, 640)


def test_factor_of_reduction_reaches_another_process() -> None:
    binding = Binding.of(servable("detector", reduced=True))
    assert binding.downscale is not None
    assert pickle.loads(pickle.dumps(binding)).downscale(1920, 960) == binding.downscale(1920, 960) == 10
