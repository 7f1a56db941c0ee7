"""Test JPEGs decoded at a fraction of their size; answers stay in pixels of the full image."""

from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSettings, PreprocessingSettings
from app.core.wire.bytes_elements import BinaryElement
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor
from tasks.vision.request import ImageItem

FIXTURES = Path(__file__).parents[5] / "fixtures"


def servable(name: str, *, reduced: bool) -> Servable:
    (source,) = model_at(FIXTURES / "models" / name)
    settings = ModelSettings(preprocessing=PreprocessingSettings(reduced_decode=reduced))
    return load(msgspec.structs.replace(source, settings=settings))


def request(file_name: str) -> InferenceRequest:
    element = BinaryElement((FIXTURES / "images" / file_name).read_bytes())
    return InferenceRequest(id="1", model_name="m", inputs=(BytesTensor(name="a", shape=(1,), elements=[element]),))


def records(name: str, file_name: str, *, reduced: bool) -> list[dict[str, Any]]:
    (output,) = servable(name, reduced=reduced).predict(request(file_name), Limits()).outputs
    return [msgspec.to_builtins(record) for record in output.predictions[0].records()]


def box(record: dict[str, Any]) -> list[float]:
    return [record[name] for name in ("xmin", "ymin", "xmax", "ymax")]


def test_boxes_are_in_pixels_of_full_image() -> None:
    full, small = (records("detector", "scene.jpg", reduced=reduced) for reduced in (False, True))
    assert [record["label"] for record in small] == [record["label"] for record in full]
    for full_record, small_record in zip(full, small, strict=True):
        np.testing.assert_allclose(box(full_record), box(small_record), atol=6)
        assert abs(full_record["score"] - small_record["score"]) < 0.1
    assert [box(record) for record in small] != [box(record) for record in full]


@pytest.mark.parametrize(
    ("name", "file_name", "count"),
    [("segmenter", "scene.jpg", 3), ("oriented-detector", "oriented.jpg", 3), ("classifier", "shape.jpg", 1)],
)
def test_reduced_decode_finds_same_labels(name: str, file_name: str, count: int) -> None:
    full, small = (records(name, file_name, reduced=reduced) for reduced in (False, True))
    assert full
    assert [record["label"] for record in small][:count] == [record["label"] for record in full][:count]


def test_image_is_not_reduced_below_model_input_size() -> None:
    model = servable("detector", reduced=True)
    for result in (model.predict(request("scene.jpg"), Limits()), *model.predict_each(request("scene.jpg"), Limits())):
        (sample,) = result.samples
        image = cast("ImageItem[Any]", sample.item).image
        assert image.pixels.shape[:2] == (240, 320)
        assert (image.height, image.width) == (480, 640)
