"""Against the processors' own post-processing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.engine.servable import Servable
from tests.app.runtimes.transformers.asking import answers, forward, image_input, parts, picture, scene

pytestmark = pytest.mark.slow

DETECTORS = ["detr", "yolos", "rt_detr", "d_fine"]


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_boxes_are_those_of_the_processor(
    folder_of: Callable[[str], Path], served: Callable[..., Servable], name: str, threshold: float
) -> None:
    model, processor = parts(folder_of(name), "AutoModelForObjectDetection")
    pixels = scene(150, 90)
    outputs = forward(model, processor(images=picture(pixels), return_tensors="pt"))
    read = processor.post_process_object_detection(outputs, threshold=threshold, target_sizes=[(90, 150)])[0]
    boxes = read["boxes"].numpy().clip(0, [150, 90, 150, 90])
    order = np.argsort(-read["scores"].numpy(), kind="stable")
    order = order[np.all(boxes[order, 2:] > boxes[order, :2], axis=1)]
    (found,) = answers(served(name), image_input(pixels, score_threshold=threshold))
    assert len(found) == len(order) > 0
    scores = read["scores"].numpy()[order]
    assert [each.score for each in found] == pytest.approx(scores.tolist(), abs=1e-4)
    assert [each.label for each in found] == [model.config.id2label[int(each)] for each in read["labels"][order]]
    corners = np.array([(each.xmin, each.ymin, each.xmax, each.ymax) for each in found])
    assert np.abs(corners - boxes[order]).max() < 1e-2


@pytest.mark.parametrize("name", DETECTORS)
def test_a_picture_is_answered_the_same_whatever_stands_beside_it(served: Callable[..., Servable], name: str) -> None:
    pictures = [scene(150, 90, 1), scene(60, 120, 2), scene(150, 90, 3)]
    together = answers(served(name), image_input(*pictures, score_threshold=0.0))
    for pixels, found in zip(pictures, together, strict=True):
        (alone,) = answers(served(name), image_input(pixels, score_threshold=0.0))
        assert [each.score for each in found] == pytest.approx([each.score for each in alone], abs=1e-4)
        assert [each.xmin for each in found] == pytest.approx([each.xmin for each in alone], abs=1e-2)
