"""Check the fields, labels, scores and thresholds of items, for every task type."""

from collections.abc import Callable, Sequence
from typing import cast

from app.conformance.chariot.image_probe import (
    FIELDS,
    PROMPTS,
    ImageCheck,
    ImageProbe,
    Item,
    ProbeResult,
    is_number,
    is_similar,
)
from app.conformance.check import InconclusiveError, Level, Need, ViolationError, expect, quote
from app.conformance.client.probe import Probe
from app.conformance.sample_images import BLANK_IMAGE, SampleImage

_SCORED = ("IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION")


def _fields(images: ImageProbe, probe: Probe) -> None:
    results = images.results(probe)
    task_type = images.task_type(probe)
    if task_type is None:
        raise InconclusiveError(
            f"The task type was not recognised from {quote(results[0].raw_items[0])}; give it with --task-type"
        )
    for result in results:
        for index, item in enumerate(result.raw_items):
            names: Item = cast("Item", item) if isinstance(item, dict) else {}
            if missing := [name for name in FIELDS[task_type] if name not in names]:
                where = f"item {index} of {result.image.name}"
                got = quote(cast("object", item))
                raise ViolationError(f"{where}: Expected {', '.join(missing)} of {task_type}, got {got}")


def _labels(images: ImageProbe, probe: Probe) -> None:
    for image, item in images.items(probe, *_SCORED):
        expect(isinstance(item.get("label", ""), str), "a string", item.get("label"), image.name)


def _scores(images: ImageProbe, probe: Probe) -> None:
    for image, item in images.items(probe, *_SCORED):
        expect(is_number(item.get("score", 0)), "a number", item.get("score"), image.name)


def _score_range(images: ImageProbe, probe: Probe) -> None:
    for image, item in images.items(probe, *_SCORED):
        expect(0 <= item.get("score", 0) <= 1.000001, "0 to 1", item.get("score"), image.name)


def _order(images: ImageProbe, probe: Probe) -> None:
    images.items(probe, *_SCORED)
    several = False
    for result in images.results(probe):
        scores = _scores_of(result)
        several = several or len(set(scores)) > 1
        expect(scores == sorted(scores, reverse=True), "falling scores", scores, result.image.name)
    if not several:
        raise InconclusiveError("No image has two items with different scores; give others with --image")


def _threshold(images: ImageProbe, probe: Probe) -> None:
    images.items(probe, *_SCORED)
    result = max(images.results(probe), key=lambda candidate: len(set(_scores_of(candidate))))
    scores = sorted(set(_scores_of(result)))
    if not scores or scores[0] >= 1:
        raise InconclusiveError("No item scores below 1")
    threshold = (scores[0] + (scores[-1] if len(scores) > 1 else 1)) / 2
    filtered = images.probe_image(probe, result.image, {"score_threshold": threshold})
    if below := [score for score in _scores_of(filtered) if score < threshold - 1e-6]:
        raise ViolationError(f"{result.image.name}: Expected scores of at least {threshold:.4f}, got {quote(below)}")


def _scores_of(result: ProbeResult) -> list[float]:
    return [item["score"] for item in result.items if is_number(item.get("score"))]


def _distinct_labels(images: ImageProbe, probe: Probe) -> None:
    images.items(probe, "IMAGE_CLASSIFICATION")
    for result in images.results(probe):
        labels = [str(item.get("label")) for item in result.items]
        expect(len(set(labels)) >= len(labels), "each label once", labels, result.image.name)


def _answers(images: ImageProbe, probe: Probe) -> None:
    for image, item in images.items(probe, "IMAGE_TEXT_TO_TEXT"):
        for name in ("prompt", "answer"):
            expect(isinstance(item.get(name, ""), str), f"{name} to be a string", item.get(name), image.name)


def _prompts(images: ImageProbe, probe: Probe) -> None:
    image, _ = images.items(probe, "IMAGE_TEXT_TO_TEXT")[0]
    result = images.probe_image(probe, image, {"prompts": PROMPTS})
    returned_prompts = [item.get("prompt") for item in result.items]
    expect(returned_prompts == list(PROMPTS), quote(list(PROMPTS)), returned_prompts, image.name)


def _exif(images: ImageProbe, probe: Probe) -> None:
    for result in images.results(probe):
        variants = (result.image.as_jpeg(), result.image.rotated(with_exif=False), result.image.rotated(with_exif=True))
        upright, rotated, marked = (images.probe_image(probe, variant).items for variant in variants)
        if is_similar(upright, rotated, 0.1):
            continue
        if is_similar(marked, rotated, 0.03):
            raise ViolationError(
                f"{result.image.name}: Expected the items of the upright image, got those of the rotated one"
            )
        if is_similar(marked, upright, 0.1):
            return
    raise InconclusiveError("The model's answers for upright and rotated images do not differ enough")


def _answers_as(
    convert: Callable[[SampleImage], SampleImage], *, same: bool = False
) -> Callable[[ImageProbe, Probe], None]:
    """Return a check that a converted image is answered, with the `same` items as the original."""

    def run(images: ImageProbe, probe: Probe) -> None:
        result = images.results(probe)[0]
        got = _expect_items(images, probe, convert(result.image))
        expect(not same or is_similar(result.items, got, 0.05), quote(list(result.items)), list(got))

    return run


def _expect_items(images: ImageProbe, probe: Probe, image: SampleImage) -> Sequence[Item]:
    exchange = images.send(probe, image, images.required_parameters(probe))
    if not exchange.ok:
        raise ViolationError(f"{image.name}: Expected status 200, got {exchange.status} {quote(exchange.body)}")
    return ProbeResult(image, images.read_items(exchange)).items


def _repeated(images: ImageProbe, probe: Probe) -> None:
    image = images.results(probe)[0].image
    first_exchange = images.send(probe, image, images.required_parameters(probe))
    second_exchange = probe.resend(first_exchange)
    first = images.read_items(first_exchange)
    if not second_exchange.ok or not is_similar(
        ProbeResult(image, first).items, ProbeResult(image, images.read_items(second_exchange)).items, 0.01
    ):
        raise ViolationError(
            f"Expected {quote(first)}, got status {second_exchange.status} {quote(second_exchange.body)}"
        )


_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PARSED = (Need.STORAGE, Need.EVALUATION)
_EVALUATED = (Need.EVALUATION,)
_ANSWERED, _SCORES = ("001",), ("I03",)
_PAGE = 'Chariot, "Inference Protocols", Responses'
_EXAMPLES = f"{_PAGE}, every example"
_TEXTS = f"{_PAGE}, Image Text to Text"
_ENGINE = "Striveworks' public engine-yolo"
_RGB = f"{_ENGINE}, decodes with PIL to RGB"

CHECKS = (
    ImageCheck("I01", _MUST, "Every item is an object with the fields of its task type.", _PAGE, _fields, _PARSED),
    ImageCheck("I02", _MUST, "label is a string.", _PAGE, _labels, _PARSED),
    ImageCheck("I03", _MUST, "score is a JSON number.", _PAGE, _scores, _PARSED),
    ImageCheck("I04", _SHOULD, "score lies between 0 and 1.", _EXAMPLES, _score_range, _EVALUATED, _SCORES),
    ImageCheck("I05", _SHOULD, "Items are sorted by falling score.", _EXAMPLES, _order, requires=_SCORES),
    ImageCheck("I06", _SHOULD, "score_threshold of an input removes items with lower scores.",
               f"{_ENGINE}, parameters.score_threshold", _threshold, requires=_SCORES),
    ImageCheck("I07", _SHOULD, "A classification names no label twice.", f"{_PAGE}, Image Classification",
               _distinct_labels, _EVALUATED),
    ImageCheck("I08", _MUST, "prompt and answer are strings.", _TEXTS, _answers, _PARSED),
    ImageCheck("I09", _MUST, "There is one item for each prompt, in order, with the prompt.", _TEXTS, _prompts,
               _PARSED, ("I08",)),
    ImageCheck("I10", _SHOULD, "EXIF orientation is applied: the items belong to the upright image.",
               "EXIF 2.32, Orientation; viewers and annotation tools rotate images this way", _exif, _EVALUATED),
    ImageCheck("I11", _MUST, "A JPEG gets an answer, like a PNG.", _RGB, _answers_as(SampleImage.as_jpeg),
               requires=_ANSWERED),
    ImageCheck("I12", _SHOULD, "A PNG with one grey channel gets an answer.", _RGB, _answers_as(SampleImage.as_grey),
               requires=_ANSWERED),
    ImageCheck("I13", _SHOULD, "An opaque alpha channel does not change the answer.", _RGB,
               _answers_as(SampleImage.with_alpha, same=True), requires=_ANSWERED),
    ImageCheck("I14", _SHOULD, "A PNG with 16 bits gets the same answer as one with 8 bits.",
               "PNG, 13.12: samples of sixteen bits are scaled to eight",
               _answers_as(SampleImage.as_sixteen_bit, same=True), requires=_ANSWERED),
    ImageCheck("I15", _SHOULD, "The same image gets the same answer each time.", "An evaluation that runs twice",
               _repeated, _EVALUATED),
    ImageCheck("I16", _MUST, "An image without objects is answered with status 200.",
               f"{_ENGINE}: no detections are an empty list",
               lambda images, probe: _expect_items(images, probe, BLANK_IMAGE), _PARSED, _ANSWERED),
)  # fmt: skip
"""The checks. Some require "001": the engine answers."""
