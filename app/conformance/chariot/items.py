"""Check the fields, labels, scores and thresholds of items, for every task type."""

from collections.abc import Sequence
from typing import cast

from app.conformance.chariot.equality import is_similar
from app.conformance.chariot.image_probe import FIELDS, PROMPTS, ImageProbe, Item, ProbeResult, is_number
from app.conformance.check import Check, InconclusiveError, Level, Need, ViolationError
from app.conformance.client.probe import Probe
from app.conformance.quoting import quote
from app.conformance.sample_images import BLANK_IMAGE, SampleImage

__all__ = ("item_checks",)

_SCORED = ("IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION")
_PARSED = (Need.STORAGE, Need.EVALUATION)
_PAGE = 'Chariot, "Inference Protocols", Responses'
_ENGINE = "Striveworks' public engine-yolo"


def item_checks(prefix: str, image_probe: ImageProbe) -> Sequence[Check]:
    """Return the checks, with ids that start with `prefix`. Some require `<prefix>-001`: the engine answers."""
    checks = _Items(image_probe)

    responds = (f"{prefix}-001",)

    def check_id(index: int) -> str:
        return f"{prefix}-I{index:02}"

    return (
        Check(
            id=check_id(1),
            level=Level.MUST,
            source=_PAGE,
            sentence="Every item is an object with the fields of its task type.",
            run=checks.fields,
            needed_for=_PARSED,
        ),
        Check(
            id=check_id(2),
            level=Level.MUST,
            source=_PAGE,
            sentence="label is a string.",
            run=checks.labels,
            needed_for=_PARSED,
        ),
        Check(
            id=check_id(3),
            level=Level.MUST,
            source=_PAGE,
            sentence="score is a JSON number.",
            run=checks.scores,
            needed_for=_PARSED,
        ),
        Check(
            id=check_id(4),
            level=Level.SHOULD,
            source=f"{_PAGE}, every example",
            sentence="score lies between 0 and 1.",
            run=checks.score_range,
            needed_for=(Need.EVALUATION,),
            requires=(check_id(3),),
        ),
        Check(
            id=check_id(5),
            level=Level.SHOULD,
            source=f"{_PAGE}, every example",
            sentence="Items are sorted by falling score.",
            run=checks.order,
            requires=(check_id(3),),
        ),
        Check(
            id=check_id(6),
            level=Level.SHOULD,
            source=f"{_ENGINE}, parameters.score_threshold",
            sentence="score_threshold of an input removes items with lower scores.",
            run=checks.threshold,
            requires=(check_id(3),),
        ),
        Check(
            id=check_id(7),
            level=Level.SHOULD,
            source=f"{_PAGE}, Image Classification",
            sentence="A classification names no label twice.",
            run=checks.distinct_labels,
            needed_for=(Need.EVALUATION,),
        ),
        Check(
            id=check_id(8),
            level=Level.MUST,
            source=f"{_PAGE}, Image Text to Text",
            sentence="prompt and answer are strings.",
            run=checks.answers,
            needed_for=_PARSED,
        ),
        Check(
            id=check_id(9),
            level=Level.MUST,
            source=f"{_PAGE}, Image Text to Text",
            sentence="There is one item for each prompt, in order, with the prompt.",
            run=checks.prompts,
            needed_for=_PARSED,
            requires=(check_id(8),),
        ),
        Check(
            id=check_id(10),
            level=Level.SHOULD,
            source="EXIF 2.32, Orientation; viewers and annotation tools rotate images this way",
            sentence="EXIF orientation is applied: the items belong to the upright image.",
            run=checks.exif,
            needed_for=(Need.EVALUATION,),
        ),
        Check(
            id=check_id(11),
            level=Level.MUST,
            source=f"{_ENGINE}, decodes with PIL to RGB",
            sentence="A JPEG gets an answer, like a PNG.",
            run=checks.jpeg,
            requires=responds,
        ),
        Check(
            id=check_id(12),
            level=Level.SHOULD,
            source=f"{_ENGINE}, decodes with PIL to RGB",
            sentence="A PNG with one grey channel gets an answer.",
            run=checks.grey,
            requires=responds,
        ),
        Check(
            id=check_id(13),
            level=Level.SHOULD,
            source=f"{_ENGINE}, decodes with PIL to RGB",
            sentence="An opaque alpha channel does not change the answer.",
            run=checks.alpha,
            requires=responds,
        ),
        Check(
            id=check_id(14),
            level=Level.SHOULD,
            source="PNG, 13.12: samples of sixteen bits are scaled to eight",
            sentence="A PNG with 16 bits gets the same answer as one with 8 bits.",
            run=checks.sixteen_bits,
            requires=responds,
        ),
        Check(
            id=check_id(15),
            level=Level.SHOULD,
            source="An evaluation that runs twice",
            sentence="The same image gets the same answer each time.",
            run=checks.repeated,
            needed_for=(Need.EVALUATION,),
        ),
        Check(
            id=check_id(16),
            level=Level.MUST,
            source=f"{_ENGINE}: no detections are an empty list",
            sentence="An image without objects is answered with status 200.",
            run=checks.no_items,
            needed_for=_PARSED,
            requires=responds,
        ),
    )


class _Items:
    """The checks of items."""

    def __init__(self, image_probe: ImageProbe) -> None:
        self._image_probe = image_probe

    def fields(self, probe: Probe) -> None:
        results = self._image_probe.results(probe)
        task_type = self._image_probe.task_type(probe)
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

    def labels(self, probe: Probe) -> None:
        for image, item in self._image_probe.items(probe, *_SCORED):
            if "label" in item and not isinstance(item["label"], str):
                raise ViolationError(f"{image.name}: Expected a string, got {quote(item['label'])}")

    def scores(self, probe: Probe) -> None:
        for image, item in self._image_probe.items(probe, *_SCORED):
            if "score" in item and not is_number(item["score"]):
                raise ViolationError(f"{image.name}: Expected a number, got {quote(item['score'])}")

    def score_range(self, probe: Probe) -> None:
        for image, item in self._image_probe.items(probe, *_SCORED):
            if not 0 <= item.get("score", 0) <= 1.000001:
                raise ViolationError(f"{image.name}: Expected 0 to 1, got {quote(item['score'])}")

    def order(self, probe: Probe) -> None:
        self._image_probe.items(probe, *_SCORED)
        several = False
        for result in self._image_probe.results(probe):
            scores = _scores(result)
            several = several or len(set(scores)) > 1
            if scores != sorted(scores, reverse=True):
                raise ViolationError(f"{result.image.name}: Expected falling scores, got {quote(scores)}")
        if not several:
            raise InconclusiveError("No image has two items with different scores; give others with --image")

    def threshold(self, probe: Probe) -> None:
        self._image_probe.items(probe, *_SCORED)
        result = max(self._image_probe.results(probe), key=lambda candidate: len(set(_scores(candidate))))
        scores = sorted(set(_scores(result)))
        if not scores or scores[0] >= 1:
            raise InconclusiveError("No item scores below 1")
        threshold = (scores[0] + (scores[-1] if len(scores) > 1 else 1)) / 2
        filtered = self._image_probe.probe_image(probe, result.image, {"score_threshold": threshold})
        below = [score for score in _scores(filtered) if score < threshold - 1e-6]
        if below:
            raise ViolationError(
                f"{result.image.name}: Expected scores of at least {threshold:.4f}, got {quote(below)}"
            )

    def distinct_labels(self, probe: Probe) -> None:
        self._image_probe.items(probe, "IMAGE_CLASSIFICATION")
        for result in self._image_probe.results(probe):
            labels = [str(item.get("label")) for item in result.items]
            if len(set(labels)) < len(labels):
                raise ViolationError(f"{result.image.name}: Expected each label once, got {quote(labels)}")

    def answers(self, probe: Probe) -> None:
        for image, item in self._image_probe.items(probe, "IMAGE_TEXT_TO_TEXT"):
            for name in ("prompt", "answer"):
                if name in item and not isinstance(item[name], str):
                    raise ViolationError(f"{image.name}: Expected {name} to be a string, got {quote(item[name])}")

    def prompts(self, probe: Probe) -> None:
        image, _ = self._image_probe.items(probe, "IMAGE_TEXT_TO_TEXT")[0]
        result = self._image_probe.probe_image(probe, image, {"prompts": PROMPTS})
        returned_prompts = [item.get("prompt") for item in result.items]
        if returned_prompts != list(PROMPTS):
            raise ViolationError(f"{image.name}: Expected {quote(list(PROMPTS))}, got {quote(returned_prompts)}")

    def exif(self, probe: Probe) -> None:
        results = self._image_probe.results(probe)
        for result in results:
            upright = self._probe_image(probe, result.image.as_jpeg()).items
            rotated = self._probe_image(probe, result.image.rotated(with_exif=False)).items
            marked = self._probe_image(probe, result.image.rotated(with_exif=True)).items
            if is_similar(upright, rotated, 0.1):
                continue
            if is_similar(marked, rotated, 0.03):
                raise ViolationError(
                    f"{result.image.name}: Expected the items of the upright image, got those of the rotated one"
                )
            if is_similar(marked, upright, 0.1):
                return
        raise InconclusiveError("The model's answers for upright and rotated images do not differ enough")

    def jpeg(self, probe: Probe) -> None:
        image = self._image_probe.results(probe)[0].image
        self._expect_items(probe, image.as_jpeg())

    def grey(self, probe: Probe) -> None:
        self._expect_items(probe, self._image_probe.results(probe)[0].image.as_grey())

    def alpha(self, probe: Probe) -> None:
        result = self._image_probe.results(probe)[0]
        self._expect_similar(result.items, self._expect_items(probe, result.image.with_alpha()))

    def sixteen_bits(self, probe: Probe) -> None:
        result = self._image_probe.results(probe)[0]
        self._expect_similar(result.items, self._expect_items(probe, result.image.as_sixteen_bit()))

    def repeated(self, probe: Probe) -> None:
        result = self._image_probe.results(probe)[0]
        first_exchange = self._image_probe.send(probe, result.image, self._image_probe.required_parameters(probe))
        second_exchange = probe.send(
            first_exchange.method,
            first_exchange.path,
            body=first_exchange.request_body,
            headers=first_exchange.request_headers,
            fresh=True,
        )
        first = self._image_probe.read_items(first_exchange)
        if not second_exchange.ok or not is_similar(
            ProbeResult(result.image, first).items,
            ProbeResult(result.image, self._image_probe.read_items(second_exchange)).items,
            0.01,
        ):
            raise ViolationError(
                f"Expected {quote(first)}, got status {second_exchange.status} {quote(second_exchange.body)}"
            )

    def no_items(self, probe: Probe) -> None:
        self._expect_items(probe, BLANK_IMAGE)

    def _expect_items(self, probe: Probe, image: SampleImage) -> Sequence[Item]:
        exchange = self._image_probe.send(probe, image, self._image_probe.required_parameters(probe))
        if not exchange.ok:
            raise ViolationError(f"{image.name}: Expected status 200, got {exchange.status} {quote(exchange.body)}")
        return ProbeResult(image, self._image_probe.read_items(exchange)).items

    def _probe_image(self, probe: Probe, image: SampleImage) -> ProbeResult:
        return self._image_probe.probe_image(probe, image)

    @staticmethod
    def _expect_similar(expected: Sequence[Item], got: Sequence[Item]) -> None:
        if not is_similar(expected, got, 0.05):
            raise ViolationError(f"Expected {quote(list(expected))}, got {quote(list(got))}")


def _scores(result: ProbeResult) -> list[float]:
    return [item["score"] for item in result.items if is_number(item.get("score"))]
