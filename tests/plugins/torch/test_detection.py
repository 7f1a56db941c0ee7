"""Compare detections with the post-processing of transformers."""

import numpy as np
import pytest

from tests.plugins.torch.asking import (
    FolderOf,
    Served,
    answers,
    boxes_of,
    forward,
    image_input,
    model_and_processor,
    pil_image,
    scene,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["detr", "yolos", "rt_detr", "d_fine"])
@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_boxes_equal_those_of_processor(folder_of: FolderOf, served: Served, name: str, threshold: float) -> None:
    model, processor = model_and_processor(folder_of(name), "AutoModelForObjectDetection")
    pixels = scene(150, 90)
    outputs = forward(model, processor(images=pil_image(pixels), return_tensors="pt"))
    expected = processor.post_process_object_detection(outputs, threshold=threshold, target_sizes=[(90, 150)])[0]
    boxes = expected["boxes"].numpy().clip(0, [150, 90, 150, 90])
    order = np.argsort(-expected["scores"].numpy(), kind="stable")
    order = order[np.all(boxes[order, 2:] > boxes[order, :2], axis=1)]
    (found,) = answers(served(name), image_input(pixels, score_threshold=threshold))
    assert len(found) == len(order) > 0
    scores = expected["scores"].numpy()[order]
    assert [record.score for record in found] == pytest.approx(scores.tolist(), abs=1e-4)
    labels = [model.config.id2label[int(number)] for number in expected["labels"][order]]
    assert [record.label for record in found] == labels
    assert np.abs(boxes_of(found) - boxes[order]).max() < 1e-2
