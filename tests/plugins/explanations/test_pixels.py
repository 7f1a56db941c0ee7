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
from tests.core.runtimes.onnxruntime.images.test_reduced_decode import request, servable

DOCUMENT = (Path(__file__).parents[3] / "docs" / "explanations.md").read_text()


@pytest.mark.parametrize("name", [field.name for field in msgspec.structs.fields(ExplanationParameters)])
def test_every_parameter_is_documented(name: str) -> None:
    assert f"| `{name}` |" in DOCUMENT


@pytest.mark.parametrize("method", ExplanationMethod)
def test_every_method_is_documented(method: ExplanationMethod) -> None:
    assert f"`{method}`:" in DOCUMENT


@pytest.mark.parametrize(("width", "height"), [(6, 4), (300, 200), (1, 1), (3, 2000)])
def test_saliency_has_the_image_size_and_values_within_0_and_1(width: int, height: int) -> None:
    coarse = np.array([[0, 0.5, 1], [1, 0, 0.25]], np.float32)
    explanation = Explanation(
        label="a",
        score=0.5,
        record=LabelledScore("a", 0.5),
        coarse=coarse,
        width=width,
        height=height,
        method=ExplanationMethod.RISE,
        samples=3,
        seed=0,
    )
    saliency = explanation.saliency
    assert saliency.shape == (height, width)
    assert saliency.dtype == np.float32
    assert saliency.min() >= 0
    assert saliency.max() <= 1


def test_explanation_uses_full_image() -> None:
    _, targets = explanation_targets(servable("detector", reduced=True), request("scene.jpg"), Limits(), None, 1)
    item: ImageItem[Any] = targets[0][0].item
    assert item.image.full_size is None
