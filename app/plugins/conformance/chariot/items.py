"""Check the fields, labels, scores and thresholds of items, for every task type."""

from collections.abc import Callable, Sequence
from typing import Any

from app.plugins.conformance.chariot.image_probe import (
    FIELDS,
    Item,
    ProbeResult,
    expect_fields,
    is_number,
    is_similar,
    items_of_type,
    probe_image,
    required_parameters,
    results_of,
    suggested_task_type,
    task_type_of,
)
from app.plugins.conformance.check import EVALUATED, MUST, PARSED, SHOULD, Check, expect, expect_same
from app.plugins.conformance.exchange import InconclusiveError, ViolationError, quote
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import BLANK_IMAGE, SampleImage
from app.plugins.conformance.tensors import TEXTS, is_object

_SCORED = ("IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION")
_PROMPTED = "IMAGE_TEXT_TO_TEXT"


def _fields(probe: Probe) -> None:
    results = results_of(probe)
    task_type = task_type_of(probe)
    if task_type is None:
        item = quote(results[0].raw_items[0])
        raise InconclusiveError(f"The task type was not recognised from {item}; give it with --task-type")
    for result in results:
        for index, item in enumerate(result.raw_items):
            missing = [name for name in FIELDS[task_type] if not is_object(item) or name not in item]
            where = f"item {index} of {result.image.name}"
            others = ", ".join(_other_fields(item, task_type))
            hint = f", probably written as {others}" if others else ""
            expect(not missing, f"{', '.join(missing)} of {task_type}{hint}", item, where)


def _only_fields(probe: Probe) -> None:
    task_type = task_type_of(probe)
    if task_type is None:
        raise InconclusiveError("The task type was not recognised; give it with --task-type")
    probable = suggested_task_type(probe)
    hint = "" if probable == task_type else f"; these are probably items of {probable}"
    for result in results_of(probe):
        for index, item in enumerate(result.raw_items):
            others = _other_fields(item, task_type)
            where = f"item {index} of {result.image.name}"
            expect(not others, f"only fields of {task_type}{hint}", others, where)


def _other_fields(item: Any, task_type: str) -> Sequence[str]:
    """Return the names of an item's fields that its task type does not have."""
    return [name for name in item if name not in FIELDS[task_type]] if is_object(item) else []


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _order(probe: Probe) -> None:
    items_of_type(probe, *_SCORED)
    several = False
    for result in results_of(probe):
        scores = _scores_of(result)
        several = several or len(set(scores)) > 1
        expect_same(scores, sorted(scores, reverse=True), "falling scores", result.image.name)
    if not several:
        raise InconclusiveError("No image has two items with different scores; give others with --image")


def _threshold(probe: Probe) -> None:
    items_of_type(probe, *_SCORED)
    result = max(results_of(probe), key=lambda candidate: len(set(_scores_of(candidate))))
    scores = sorted(set(_scores_of(result)))
    if not scores or scores[0] >= 1:
        raise InconclusiveError("No item scores below 1")
    threshold = (scores[0] + (scores[-1] if len(scores) > 1 else 1)) / 2
    filtered = probe_image(probe, result.image, {"score_threshold": threshold})
    below = [score for score in _scores_of(filtered) if score < threshold - 1e-6]
    expect(not below, f"scores of at least {threshold:.4f}", below, result.image.name)


def _scores_of(result: ProbeResult) -> list[float]:
    return [item["score"] for item in result.items if is_number(item.get("score"))]


def _distinct_labels(probe: Probe) -> None:
    items_of_type(probe, "IMAGE_CLASSIFICATION")
    for result in results_of(probe):
        labels = [str(item.get("label")) for item in result.items]
        expect(len(set(labels)) >= len(labels), "each label once", labels, result.image.name)


def _prompts(probe: Probe) -> None:
    image, _ = items_of_type(probe, _PROMPTED)[0]
    result = probe_image(probe, image, {"prompts": TEXTS})
    expect_same([item.get("prompt") for item in result.items], list(TEXTS), where=image.name)


def _exif(probe: Probe) -> None:
    for result in results_of(probe):
        variants = (result.image.as_jpeg(), result.image.rotated(with_exif=False), result.image.rotated(with_exif=True))
        upright, rotated, marked = (probe_image(probe, variant).items for variant in variants)
        if is_similar(upright, rotated, 0.1):
            continue
        if is_similar(marked, rotated, 0.03):
            expected = "Expected the items of the upright image, got items of the rotated one"
            raise ViolationError(f"{result.image.name}: {expected}")
        if is_similar(marked, upright, 0.1):
            return
    raise InconclusiveError("The model's answers for upright and rotated images do not differ enough")


def _expect_answer(probe: Probe, convert: Callable[[SampleImage], SampleImage], *, same: bool = False) -> None:
    """Raise a `ViolationError` unless a converted image is answered, with the `same` items as the original."""
    result = results_of(probe)[0]
    got = _expect_items(probe, convert(result.image))
    expect(not same or is_similar(result.items, got, 0.05), quote(list(result.items)), list(got))


def _expect_items(probe: Probe, image: SampleImage) -> Sequence[Item]:
    exchange = probe.images.send(probe, image, required_parameters(probe))
    if not exchange.ok:
        raise ViolationError(f"{image.name}: Expected status 200, got {exchange.status} {quote(exchange.body)}")
    return ProbeResult(image, probe.images.read_items(exchange)).items


def _repeated(probe: Probe) -> None:
    first = probe.images.send(probe, results_of(probe)[0].image, required_parameters(probe))
    again = probe.resend(first)
    items = probe.images.read_items(first)
    if not again.ok or not is_similar(items, probe.images.read_items(again), 0.01):
        raise ViolationError(f"Expected {quote(items)}, got status {again.status} {quote(again.body)}")


_ANSWERED, _SCORES = ("001",), ("I03",)
_PAGE = 'Chariot, "Inference Protocols", Responses'
_EXAMPLES = f"{_PAGE}, every example"
_TEXTS = f"{_PAGE}, Image Text to Text"
_ENGINE = "Striveworks' public engine-yolo"
_RGB = f"{_ENGINE}, decodes with PIL to RGB"

CHECKS = (
    Check("I01", MUST, "Every item is an object with the fields of its task type.", _PAGE, _fields, PARSED),
    Check("I17", SHOULD, "Items have only the fields of their task type.", _PAGE, _only_fields, requires=("I01",)),
    Check("I02", MUST, "label is a string.", _PAGE,
          lambda probe: expect_fields(probe, _is_text, "a string", ["label"], *_SCORED), PARSED),
    Check("I03", MUST, "score is a JSON number.", _PAGE,
          lambda probe: expect_fields(probe, is_number, "a number", ["score"], *_SCORED), PARSED),
    Check("I04", SHOULD, "score lies between 0 and 1.", _EXAMPLES,
          lambda probe: expect_fields(probe, lambda score: 0 <= score <= 1.000001, "0 to 1", ["score"], *_SCORED),
          EVALUATED, _SCORES),
    Check("I05", SHOULD, "Items are sorted by falling score.", _EXAMPLES, _order, requires=_SCORES),
    Check("I06", SHOULD, "score_threshold of an input removes items with lower scores.",
          f"{_ENGINE}, parameters.score_threshold", _threshold, requires=_SCORES),
    Check("I07", SHOULD, "A classification names no label twice.", f"{_PAGE}, Image Classification",
          _distinct_labels, EVALUATED),
    Check("I08", MUST, "prompt and answer are strings.", _TEXTS,
          lambda probe: expect_fields(probe, _is_text, "a string", ["prompt", "answer"], _PROMPTED), PARSED),
    Check("I09", MUST, "There is one item for each prompt, in order, with the prompt.", _TEXTS, _prompts, PARSED,
          ("I08",)),
    Check("I10", SHOULD, "EXIF orientation is applied: the items belong to the upright image.",
          "EXIF 2.32, Orientation; viewers and annotation tools rotate images this way", _exif, EVALUATED),
    Check("I11", MUST, "A JPEG gets an answer, like a PNG.", _RGB,
          lambda probe: _expect_answer(probe, SampleImage.as_jpeg), requires=_ANSWERED),
    Check("I12", SHOULD, "A PNG with one grey channel gets an answer.", _RGB,
          lambda probe: _expect_answer(probe, SampleImage.as_grey), requires=_ANSWERED),
    Check("I13", SHOULD, "An opaque alpha channel does not change the answer.", _RGB,
          lambda probe: _expect_answer(probe, SampleImage.with_alpha, same=True), requires=_ANSWERED),
    Check("I14", SHOULD, "A PNG with 16 bits gets the same answer as one with 8 bits.",
          "PNG, 13.12: samples of sixteen bits are scaled to eight",
          lambda probe: _expect_answer(probe, SampleImage.as_sixteen_bit, same=True), requires=_ANSWERED),
    Check("I15", SHOULD, "The same image gets the same answer each time.", "An evaluation that runs twice",
          _repeated, EVALUATED),
    Check("I16", MUST, "An image without objects is answered with status 200.",
          f"{_ENGINE}: no detections are an empty list", lambda probe: _expect_items(probe, BLANK_IMAGE), PARSED,
          _ANSWERED),
)  # fmt: skip
"""The checks. Some require "001": the engine answers."""
