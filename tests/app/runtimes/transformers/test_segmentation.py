"""Against the processors' own post-processing: contours filled back are its masks."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine.servable import Servable
from app.runtimes.transformers.semantic_segmentation import class_map
from tasks.vision.contours import mask_of_contours
from tests.app.runtimes.transformers.asking import answers, forward, image_input, parts, picture, scene
from tests.support import tiny

pytestmark = pytest.mark.slow

WIDTH, HEIGHT = 120, 80


def mask(record: Any) -> NDArray[np.uint8]:
    contours = [np.array([(point.x, point.y) for point in each], np.float32) for each in record.contour]
    return mask_of_contours(contours, WIDTH, HEIGHT)


def test_every_class_of_a_semantic_model_is_an_object(
    folder_of: Callable[[str], Path], served: Callable[..., Servable]
) -> None:
    model, processor = parts(folder_of("segformer"), "AutoModelForSemanticSegmentation")
    pixels = scene(WIDTH, HEIGHT)
    outputs = forward(model, processor(images=picture(pixels), return_tensors="pt"))
    classes = processor.post_process_semantic_segmentation(outputs, target_sizes=[(HEIGHT, WIDTH)])[0].numpy()
    large = tiny.torch().nn.functional.interpolate(outputs.logits, (HEIGHT, WIDTH), mode="bilinear")
    scores = large.softmax(1)[0].amax(0).numpy()
    (found,) = answers(served("segformer"), image_input(pixels, score_threshold=0.0))
    assert len(found) == len(np.unique(classes)) > 1
    for each in found:
        expected = classes == tiny.LABELS.index(each.label)
        assert np.array_equal(mask(each), expected)
        assert each.score == pytest.approx(scores[expected].mean(), abs=1e-4)


def test_a_map_of_many_classes_is_the_same_in_parts() -> None:
    torch = tiny.torch()
    logits = torch.randn(40, 5, 7, generator=torch.Generator().manual_seed(0)) * 3
    large = torch.nn.functional.interpolate(logits[None], (1000, 1100), mode="bilinear")[0]
    classes, scores = class_map(logits, (1000, 1100))
    assert np.array_equal(classes, large.argmax(0).numpy())
    assert np.abs(scores - large.softmax(0).amax(0).numpy()).max() < 1e-5


@pytest.mark.parametrize("name", ["maskformer", "mask2former", "oneformer"])
@pytest.mark.parametrize("layout", ["panoptic", "instance", "semantic"])
def test_masks_are_those_of_the_processor(
    folder_of: Callable[[str], Path], served: Callable[..., Servable], name: str, layout: str
) -> None:
    model, processor = parts(folder_of(name), "AutoModelForUniversalSegmentation")
    pixels = scene(WIDTH, HEIGHT)
    inputs = dict(processor(images=picture(pixels), return_tensors="pt"))
    if name == "oneformer":
        tokenizer = tiny.transformers().AutoTokenizer.from_pretrained(folder_of(name))
        encoded = tokenizer([f"the task is {layout}"], padding="max_length", truncation=True, max_length=20)
        inputs["task_inputs"] = tiny.torch().tensor(encoded["input_ids"])
    outputs = forward(model, inputs)
    read = getattr(processor, f"post_process_{layout}_segmentation")
    if name == "oneformer" and layout != "semantic":
        # The library's own needs torchvision here, which it does not say; its MaskFormer has the same outputs.
        kind = tiny.transformers().MaskFormerImageProcessorPil
        read = partial(getattr(kind, f"post_process_{layout}_segmentation"), processor)
    threshold = 0.0 if layout == "semantic" else 0.1
    expected: list[tuple[str, float | None, NDArray[np.uint8]]] = []
    if layout == "semantic":
        classes = read(outputs, target_sizes=[(HEIGHT, WIDTH)])[0].numpy()
        expected += [
            (tiny.LABELS[number], None, (classes == number).astype(np.uint8)) for number in np.unique(classes).tolist()
        ]
    else:
        more = {"return_binary_maps": True} if layout == "instance" else {}
        told = read(outputs, threshold=threshold, target_sizes=[(HEIGHT, WIDTH)], **more)[0]
        masks = told["segmentation"].numpy()
        segments: list[Any] = told["segments_info"]
        for place, each in enumerate(segments):
            own = masks[place] if masks.ndim == 3 else masks == each["id"]
            expected.append((tiny.LABELS[int(each["label_id"])], float(each["score"]), own.astype(np.uint8)))
    (found,) = answers(served(name, layout), image_input(pixels, score_threshold=threshold))
    expected = [each for each in expected if each[2].any()]
    assert len(found) == len(expected) > 0
    left = list(range(len(expected)))
    for each in found:
        (place, *_) = [
            place
            for place in left
            if expected[place][0] == each.label
            and expected[place][1] in (None, pytest.approx(each.score, abs=1e-4))
            and np.array_equal(expected[place][2], mask(each))
        ]
        left.remove(place)
    assert left == []
    assert all(0 <= each.score <= 1 for each in found)


def test_masks_of_several_pictures_are_read_apart(served: Callable[..., Servable]) -> None:
    pictures = [scene(WIDTH, HEIGHT, 1), scene(WIDTH, HEIGHT, 2)]
    together = answers(served("mask2former"), image_input(*pictures, score_threshold=0.1))
    alone = [answers(served("mask2former"), image_input(each, score_threshold=0.1))[0] for each in pictures]
    for found, expected in zip(together, alone, strict=True):
        assert [each.label for each in found] == [each.label for each in expected]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-3)


def test_the_masks_of_a_large_picture_have_its_size(served: Callable[..., Servable]) -> None:
    (found,) = answers(served("mask2former", "semantic"), image_input(scene(2400, 1600), score_threshold=0.0))
    points = [point for each in found for contour in each.contour for point in contour]
    assert max(point.x for point in points) == 2399
    assert max(point.y for point in points) == 1599
