"""Saliency maps of explanations, and the documentation of their parameters."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.plugins.explanations.pixels import Explanation, ExplanationMethod, ExplanationParameters
from app.plugins.explanations.request import explanation_targets
from tasks.image_classification import LabelledScore
from tasks.inference.limits import Limits
from tasks.vision.request import ImageItem
from tests.core.runtimes.onnxruntime.images.test_reduced_decode import image_input, servable
from tests.support.data.requests import request

DOCUMENT = (Path(__file__).parents[3] / "docs" / "explanations.md").read_text()


def test_every_parameter_and_method_is_documented() -> None:
    names = [f"| `{field.name}` |" for field in msgspec.structs.fields(ExplanationParameters)]
    missing = [text for text in (*names, *(f"`{method}`:" for method in ExplanationMethod)) if text not in DOCUMENT]
    assert not missing


@pytest.mark.parametrize(("width", "height"), [(6, 4), (300, 200), (1, 1), (3, 2000)])
def test_saliency_has_the_image_size_and_values_within_0_and_1(width: int, height: int) -> None:
    saliency = sized_explanation(width, height).saliency
    assert (saliency.shape, saliency.dtype) == ((height, width), np.float32)
    assert 0 <= saliency.min() <= saliency.max() <= 1


def sized_explanation(width: int, height: int) -> Explanation:
    """Return an explanation of an image of this size."""
    coarse = np.array([[0, 0.5, 1], [1, 0, 0.25]], np.float32)
    record, method = LabelledScore("a", 0.5), ExplanationMethod.RISE
    return Explanation(
        label="a", score=0.5, record=record, coarse=coarse, width=width, height=height, method=method, samples=3, seed=0
    )


def test_explanation_uses_full_image() -> None:
    _, targets = explanation_targets(
        servable("detector", reduced=True), request(image_input("scene.jpg")), Limits(), None, 1
    )
    item: ImageItem[Any] = targets[0][0].item
    assert item.image.full_size is None
