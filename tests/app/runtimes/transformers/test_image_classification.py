"""Against the library's own pipeline."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.servable import Servable
from app.runtimes.transformers.classes import probabilities
from tasks.exchange.error import InferenceError
from tests.app.runtimes.transformers.asking import answers, image_input, parts, picture, scene
from tests.support import tiny

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["vit", "resnet"])
def test_it_answers_what_the_pipeline_answers(
    folder_of: Callable[[str], Path], served: Callable[..., Servable], name: str
) -> None:
    model, processor = parts(folder_of(name), "AutoModelForImageClassification")
    pipeline = tiny.transformers().pipeline("image-classification", model=model, image_processor=processor)
    for pixels in (scene(), scene(40, 200, 1), scene(32, 32, 2)):
        expected: list[Any] = pipeline(picture(pixels), top_k=3)
        (found,) = answers(served(name), image_input(pixels))
        assert [each.label for each in found] == [each["label"] for each in expected]
        assert [each.score for each in found] == pytest.approx([each["score"] for each in expected], abs=1e-4)
        assert max(each.score for each in found) < 0.999


def test_pictures_of_several_sizes_are_answered_in_their_order(served: Callable[..., Servable]) -> None:
    pictures = [scene(96, 64, 1), scene(50, 70, 2), scene(96, 64, 3)]
    together = answers(served("resnet"), image_input(*pictures))
    alone = [answers(served("resnet"), image_input(each))[0] for each in pictures]
    for found, expected in zip(together, alone, strict=True):
        assert [each.label for each in found] == [each.label for each in expected]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-5)


def test_predict_gives_the_best_class(served: Callable[..., Servable]) -> None:
    (every,) = answers(served("vit"), image_input(scene()))
    assert answers(served("vit"), image_input(scene(), action="predict")) == [every[:1]]


def test_told_classes_are_refused(served: Callable[..., Servable]) -> None:
    with pytest.raises(InferenceError, match="classes of its own") as caught:
        answers(served("vit"), image_input(scene(), candidate_labels=["cat"]))
    assert caught.value.path == "inputs[0].parameters.candidate_labels"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, [[0.8807971, 0.1192029]]),
        ("single_label_classification", [[0.8807971, 0.1192029]]),
        ("multi_label_classification", [[0.8807971, 0.5]]),
        ("regression", [[2.0, 0.0]]),
    ],
)
def test_the_kind_of_problem_says_how_logits_are_read(kind: str | None, expected: list[list[float]]) -> None:
    config = tiny.transformers().PretrainedConfig(problem_type=kind)
    assert np.allclose(probabilities(tiny.torch().tensor([[2.0, 0.0]]), config), expected)


def test_a_single_class_is_scored_for_itself() -> None:
    config = tiny.transformers().PretrainedConfig(num_labels=1)
    assert np.allclose(probabilities(tiny.torch().tensor([[0.0]]), config), [[0.5]])
