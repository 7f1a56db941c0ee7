"""Models that look at JPEGs decoded at a fraction of their size, told in pixels of the whole picture all the same."""

from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from app.assembly.discovery import model_at
from app.assembly.models import load
from app.engine.servable import Servable
from app.protocols.bytes_elements import BinaryElement
from app.settings.model import ModelSettings, PreprocessingSettings
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor
from tasks.explanation.probe import ImageItem

FIXTURES = Path(__file__).parents[4] / "fixtures"


def servable(name: str, *, reduced: bool) -> Servable:
    (source,) = model_at(FIXTURES / "models" / name)
    settings = ModelSettings(preprocessing=PreprocessingSettings(reduced_decode=reduced))
    return load(msgspec.structs.replace(source, settings=settings))


def request(picture: str) -> InferenceRequest:
    element = BinaryElement((FIXTURES / "images" / picture).read_bytes())
    return InferenceRequest(id="1", model_name="m", inputs=(BytesTensor(name="a", shape=(1,), elements=[element]),))


def records(name: str, picture: str, *, reduced: bool) -> list[dict[str, Any]]:
    (output,) = servable(name, reduced=reduced).answer(request(picture), Limits()).outputs
    return [msgspec.to_builtins(each) for each in output.predictions[0].records()]


def box(record: dict[str, Any]) -> list[float]:
    return [record[name] for name in ("xmin", "ymin", "xmax", "ymax")]


def test_boxes_are_in_pixels_of_the_whole_picture() -> None:
    whole, small = (records("detector", "scene.jpg", reduced=reduced) for reduced in (False, True))
    assert [each["label"] for each in small] == [each["label"] for each in whole]
    for one, other in zip(whole, small, strict=True):
        np.testing.assert_allclose(box(one), box(other), atol=6)
        assert abs(one["score"] - other["score"]) < 0.1
    assert [box(each) for each in small] != [box(each) for each in whole]


@pytest.mark.parametrize(
    ("name", "picture", "count"),
    [("segmenter", "scene.jpg", 3), ("oriented-detector", "oriented.jpg", 3), ("classifier", "shape.jpg", 1)],
)
def test_the_same_is_found(name: str, picture: str, count: int) -> None:
    whole, small = (records(name, picture, reduced=reduced) for reduced in (False, True))
    assert whole
    assert [each["label"] for each in small][:count] == [each["label"] for each in whole][:count]


def test_only_as_much_is_left_out_as_the_model_does_not_see() -> None:
    (datum,) = servable("detector", reduced=True).answer(request("scene.jpg"), Limits()).data
    image = cast("ImageItem", datum.item).image
    assert image.pixels.shape[:2] == (240, 320)
    assert (image.height, image.width) == (480, 640)


def test_explanations_see_all_there_is_to_see() -> None:
    found = servable("detector", reduced=True).find(request("scene.jpg"), Limits(), None, 1)
    item: ImageItem = found.subjects[0][0].item
    assert item.image.full is None
