"""Compare classes, boxes and filled contours with the pipelines and processors of transformers."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.plugins.transformers.torch.heads.classification import probabilities
from app.plugins.transformers.torch.heads.segmentation import class_map
from tests.plugins.transformers.torch.asking import (
    FolderOf,
    Served,
    answers,
    boxes_of,
    forward,
    image_input,
    mask_of,
    model_and_processor,
    pil_image,
    scene,
)
from tests.support.models import tiny_models
from tests.support.rejection import rejects


@pytest.mark.parametrize("name", ["vit", "resnet"])
def test_answers_equal_those_of_pipeline(folder_of: FolderOf, served: Served, name: str) -> None:
    model, processor = model_and_processor(folder_of(name), "AutoModelForImageClassification")
    pipeline = tiny_models.transformers().pipeline("image-classification", model=model, image_processor=processor)
    for pixels in (scene(), scene(40, 200, 1), scene(32, 32, 2)):
        expected: list[Any] = pipeline(pil_image(pixels), top_k=3)
        (found,) = answers(served(name), image_input(pixels))
        assert [record.label for record in found] == [record["label"] for record in expected]
        assert [record.score for record in found] == pytest.approx([record["score"] for record in expected], abs=1e-4)
        assert max(record.score for record in found) < 0.999


def test_candidate_labels_are_rejected(served: Served) -> None:
    with rejects("classes of its own", "inputs[0].parameters.candidate_labels"):
        answers(served("vit"), image_input(scene(), candidate_labels=["cat"]))


@pytest.mark.parametrize(
    ("config", "logits", "expected"),
    [
        ({"problem_type": None}, [2.0, 0.0], [0.8807971, 0.1192029]),
        ({"problem_type": "single_label_classification"}, [2.0, 0.0], [0.8807971, 0.1192029]),
        ({"problem_type": "multi_label_classification"}, [2.0, 0.0], [0.8807971, 0.5]),
        ({"problem_type": "regression"}, [2.0, 0.0], [2.0, 0.0]),
        ({"num_labels": 1}, [0.0], [0.5]),
    ],
)
def test_configuration_decides_how_logits_are_read(
    config: dict[str, Any], logits: list[float], expected: list[float]
) -> None:
    read = tiny_models.transformers().PretrainedConfig(**config)
    assert np.allclose(probabilities(tiny_models.torch().tensor([logits]), read), [expected])


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


WIDTH, HEIGHT = 120, 80


def test_every_class_of_a_semantic_model_is_an_object(folder_of: FolderOf, served: Served) -> None:
    model, processor = model_and_processor(folder_of("segformer"), "AutoModelForSemanticSegmentation")
    pixels = scene(WIDTH, HEIGHT)
    outputs = forward(model, processor(images=pil_image(pixels), return_tensors="pt"))
    classes = processor.post_process_semantic_segmentation(outputs, target_sizes=[(HEIGHT, WIDTH)])[0].numpy()
    enlarged = tiny_models.torch().nn.functional.interpolate(outputs.logits, (HEIGHT, WIDTH), mode="bilinear")
    scores = enlarged.softmax(1)[0].amax(0).numpy()
    (found,) = answers(served("segformer"), image_input(pixels, score_threshold=0.0))
    assert len(found) == len(np.unique(classes)) > 1
    for record in found:
        expected = classes == tiny_models.LABELS.index(record.label)
        assert np.array_equal(mask_of(record, WIDTH, HEIGHT), expected)
        assert record.score == pytest.approx(scores[expected].mean(), abs=1e-4)


def test_class_map_computed_in_parts_equals_full_map(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = tiny_models.torch()
    # Enlarge three of the classes at a time.
    monkeypatch.setattr("app.plugins.transformers.torch.heads.segmentation._MAX_ENLARGED", 3 * 100 * 110)
    logits = torch.randn(40, 5, 7, generator=torch.Generator().manual_seed(0)) * 3
    enlarged = torch.nn.functional.interpolate(logits[None], (100, 110), mode="bilinear")[0]
    classes, scores = class_map(logits, (100, 110))
    assert np.array_equal(classes, enlarged.argmax(0).numpy())
    assert np.abs(scores - enlarged.softmax(0).amax(0).numpy()).max() < 1e-5


@pytest.mark.parametrize("name", ["maskformer", "mask2former", "oneformer"])
@pytest.mark.parametrize("layout", ["panoptic", "instance", "semantic"])
def test_masks_equal_those_of_processor(folder_of: FolderOf, served: Served, name: str, layout: str) -> None:
    model, processor = model_and_processor(folder_of(name), "AutoModelForUniversalSegmentation")
    pixels = scene(WIDTH, HEIGHT)
    inputs = dict(processor(images=pil_image(pixels), return_tensors="pt"))
    if name == "oneformer":
        tokenizer = tiny_models.transformers().AutoTokenizer.from_pretrained(folder_of(name))
        encoded = tokenizer([f"the task is {layout}"], padding="max_length", truncation=True, max_length=20)
        inputs["task_inputs"] = tiny_models.torch().tensor(encoded["input_ids"])
    outputs = forward(model, inputs)
    post_process = getattr(processor, f"post_process_{layout}_segmentation")
    if name == "oneformer" and layout != "semantic":
        # OneFormer's post-processing needs torchvision; MaskFormer's accepts the same outputs without it.
        processor_class = tiny_models.transformers().MaskFormerImageProcessorPil
        post_process = partial(getattr(processor_class, f"post_process_{layout}_segmentation"), processor)
    threshold = 0.0 if layout == "semantic" else 0.1
    expected: list[tuple[str, float | None, NDArray[np.uint8]]] = []
    if layout == "semantic":
        classes = post_process(outputs, target_sizes=[(HEIGHT, WIDTH)])[0].numpy()
        expected += [
            (tiny_models.LABELS[number], None, (classes == number).astype(np.uint8))
            for number in np.unique(classes).tolist()
        ]
    else:
        options = {"return_binary_maps": True} if layout == "instance" else {}
        result = post_process(outputs, threshold=threshold, target_sizes=[(HEIGHT, WIDTH)], **options)[0]
        masks = result["segmentation"].numpy()
        segments: list[Any] = result["segments_info"]
        for index, segment in enumerate(segments):
            own = masks[index] if masks.ndim == 3 else masks == segment["id"]
            label = tiny_models.LABELS[int(segment["label_id"])]
            expected.append((label, float(segment["score"]), own.astype(np.uint8)))
    (found,) = answers(served(name, layout), image_input(pixels, score_threshold=threshold))
    expected = [entry for entry in expected if entry[2].any()]
    assert len(found) == len(expected) > 0
    unmatched = list(range(len(expected)))
    for record in found:
        (index, *_) = [
            index
            for index in unmatched
            if expected[index][0] == record.label
            and expected[index][1] in (None, pytest.approx(record.score, abs=1e-4))
            and np.array_equal(expected[index][2], mask_of(record, WIDTH, HEIGHT))
        ]
        unmatched.remove(index)
    assert unmatched == []
    assert all(0 <= record.score <= 1 for record in found)


@pytest.mark.parametrize("layout", ["panoptic", "instance"])
def test_image_without_confident_segments_has_no_objects(served: Served, layout: str) -> None:
    assert answers(served("maskformer", layout), image_input(scene(WIDTH, HEIGHT), score_threshold=1.0)) == [[]]


def test_masks_of_large_image_have_its_size(served: Served) -> None:
    (found,) = answers(served("mask2former", "semantic"), image_input(scene(2400, 1600), score_threshold=0.0))
    points = [point for record in found for contour in record.contour for point in contour]
    assert max(point.x for point in points) == 2399
    assert max(point.y for point in points) == 1599


@pytest.mark.parametrize("name", ["maskformer", "oneformer"])
def test_image_that_the_processor_rejects_is_an_invalid_request(served: Served, name: str) -> None:
    with rejects("The model's processor rejects the image"):
        answers(served(name), image_input(np.zeros((700, 1, 3), np.uint8)))
