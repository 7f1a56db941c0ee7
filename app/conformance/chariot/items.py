"""Check the fields, labels, scores and thresholds of items, for every task type."""

from collections.abc import Sequence
from typing import cast

from app.conformance.chariot.comparing import alike
from app.conformance.chariot.looking import FIELDS, PROMPTS, Item, Look, Looking, is_number
from app.conformance.clause import Clause, FaultError, Level, Need, UntestedError
from app.conformance.pictures import PLAIN, Picture
from app.conformance.probe import Probe
from app.conformance.quoting import brief

__all__ = ("item_clauses",)

_SCORED = ("IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION")
_PARSED = (Need.STORAGE, Need.EVALUATION)
_PAGE = 'Chariot, "Inference Protocols", Responses'
_ENGINE = "Striveworks' public engine-yolo"


def item_clauses(prefix: str, looking: Looking) -> Sequence[Clause]:
    """Return the clauses, with ids that start with `prefix`; clause 001 is that the engine answers."""
    checks = _Items(looking)

    answers = (f"{prefix}-001",)

    def number(index: int) -> str:
        return f"{prefix}-I{index:02}"

    return (
        Clause(
            id=number(1),
            level=Level.MUST,
            source=_PAGE,
            sentence="Every item is an object with the fields of its task type.",
            check=checks.fields,
            needed_for=_PARSED,
        ),
        Clause(
            id=number(2),
            level=Level.MUST,
            source=_PAGE,
            sentence="label is a string.",
            check=checks.labels,
            needed_for=_PARSED,
        ),
        Clause(
            id=number(3),
            level=Level.MUST,
            source=_PAGE,
            sentence="score is a JSON number.",
            check=checks.scores,
            needed_for=_PARSED,
        ),
        Clause(
            id=number(4),
            level=Level.SHOULD,
            source=f"{_PAGE}, every example",
            sentence="score lies between 0 and 1.",
            check=checks.score_range,
            needed_for=(Need.EVALUATION,),
            requires=(number(3),),
        ),
        Clause(
            id=number(5),
            level=Level.SHOULD,
            source=f"{_PAGE}, every example",
            sentence="Items are sorted by falling score.",
            check=checks.order,
            requires=(number(3),),
        ),
        Clause(
            id=number(6),
            level=Level.SHOULD,
            source=f"{_ENGINE}, parameters.score_threshold",
            sentence="score_threshold of an input removes items with lower scores.",
            check=checks.threshold,
            requires=(number(3),),
        ),
        Clause(
            id=number(7),
            level=Level.SHOULD,
            source=f"{_PAGE}, Image Classification",
            sentence="A classification names no label twice.",
            check=checks.distinct_labels,
            needed_for=(Need.EVALUATION,),
        ),
        Clause(
            id=number(8),
            level=Level.MUST,
            source=f"{_PAGE}, Image Text to Text",
            sentence="prompt and answer are strings.",
            check=checks.answers,
            needed_for=_PARSED,
        ),
        Clause(
            id=number(9),
            level=Level.MUST,
            source=f"{_PAGE}, Image Text to Text",
            sentence="There is one item for each prompt, in order, with the prompt.",
            check=checks.prompts,
            needed_for=_PARSED,
            requires=(number(8),),
        ),
        Clause(
            id=number(10),
            level=Level.SHOULD,
            source="EXIF 2.32, Orientation; viewers and annotation tools rotate images this way",
            sentence="EXIF orientation is applied: the items belong to the upright image.",
            check=checks.exif,
            needed_for=(Need.EVALUATION,),
        ),
        Clause(
            id=number(11),
            level=Level.MUST,
            source=f"{_ENGINE}, decodes with PIL to RGB",
            sentence="A JPEG gets an answer, like a PNG.",
            check=checks.jpeg,
            requires=answers,
        ),
        Clause(
            id=number(12),
            level=Level.SHOULD,
            source=f"{_ENGINE}, decodes with PIL to RGB",
            sentence="A PNG with one grey channel gets an answer.",
            check=checks.grey,
            requires=answers,
        ),
        Clause(
            id=number(13),
            level=Level.SHOULD,
            source=f"{_ENGINE}, decodes with PIL to RGB",
            sentence="An opaque alpha channel does not change the answer.",
            check=checks.alpha,
            requires=answers,
        ),
        Clause(
            id=number(14),
            level=Level.SHOULD,
            source="PNG, 13.12: samples of sixteen bits are scaled to eight",
            sentence="A PNG with 16 bits gets the same answer as one with 8 bits.",
            check=checks.sixteen_bits,
            requires=answers,
        ),
        Clause(
            id=number(15),
            level=Level.SHOULD,
            source="An evaluation that runs twice",
            sentence="The same image gets the same answer each time.",
            check=checks.repeated,
            needed_for=(Need.EVALUATION,),
        ),
        Clause(
            id=number(16),
            level=Level.MUST,
            source=f"{_ENGINE}: no detections are an empty list",
            sentence="An image without objects is answered with status 200.",
            check=checks.nothing,
            needed_for=_PARSED,
            requires=answers,
        ),
    )


class _Items:
    """The checks of items."""

    def __init__(self, looking: Looking) -> None:
        self._looking = looking

    def fields(self, probe: Probe) -> None:
        looks = self._looking.looks(probe)
        task_type = self._looking.task_type(probe)
        if task_type is None:
            raise UntestedError(
                f"The task type was not recognised from {brief(looks[0].found[0])}; give it with --task-type"
            )
        for look in looks:
            for index, item in enumerate(look.found):
                names: Item = cast("Item", item) if isinstance(item, dict) else {}
                if missing := [name for name in FIELDS[task_type] if name not in names]:
                    where = f"item {index} of {look.picture.name}"
                    got = brief(cast("object", item))
                    raise FaultError(f"{where}: Expected {', '.join(missing)} of {task_type}, got {got}")

    def labels(self, probe: Probe) -> None:
        for picture, item in self._looking.items(probe, *_SCORED):
            if "label" in item and not isinstance(item["label"], str):
                raise FaultError(f"{picture.name}: Expected a string, got {brief(item['label'])}")

    def scores(self, probe: Probe) -> None:
        for picture, item in self._looking.items(probe, *_SCORED):
            if "score" in item and not is_number(item["score"]):
                raise FaultError(f"{picture.name}: Expected a number, got {brief(item['score'])}")

    def score_range(self, probe: Probe) -> None:
        for picture, item in self._looking.items(probe, *_SCORED):
            if not 0 <= item.get("score", 0) <= 1.000001:
                raise FaultError(f"{picture.name}: Expected 0 to 1, got {brief(item['score'])}")

    def order(self, probe: Probe) -> None:
        self._looking.items(probe, *_SCORED)
        several = False
        for look in self._looking.looks(probe):
            scores = _scores(look)
            several = several or len(set(scores)) > 1
            if scores != sorted(scores, reverse=True):
                raise FaultError(f"{look.picture.name}: Expected falling scores, got {brief(scores)}")
        if not several:
            raise UntestedError("No image has two items with different scores; give others with --image")

    def threshold(self, probe: Probe) -> None:
        self._looking.items(probe, *_SCORED)
        look = max(self._looking.looks(probe), key=lambda candidate: len(set(_scores(candidate))))
        scores = sorted(set(_scores(look)))
        if not scores or scores[0] >= 1:
            raise UntestedError("No item scores below 1")
        threshold = (scores[0] + (scores[-1] if len(scores) > 1 else 1)) / 2
        below = [score for score in _scores(self._looking.look(probe, look.picture, {"score_threshold": threshold}))
                 if score < threshold - 1e-6]  # fmt: skip
        if below:
            raise FaultError(f"{look.picture.name}: Expected scores of at least {threshold:.4f}, got {brief(below)}")

    def distinct_labels(self, probe: Probe) -> None:
        self._looking.items(probe, "IMAGE_CLASSIFICATION")
        for look in self._looking.looks(probe):
            labels = [str(item.get("label")) for item in look.items]
            if len(set(labels)) < len(labels):
                raise FaultError(f"{look.picture.name}: Expected each label once, got {brief(labels)}")

    def answers(self, probe: Probe) -> None:
        for picture, item in self._looking.items(probe, "IMAGE_TEXT_TO_TEXT"):
            for name in ("prompt", "answer"):
                if name in item and not isinstance(item[name], str):
                    raise FaultError(f"{picture.name}: Expected {name} to be a string, got {brief(item[name])}")

    def prompts(self, probe: Probe) -> None:
        picture, _ = self._looking.items(probe, "IMAGE_TEXT_TO_TEXT")[0]
        answered = self._looking.look(probe, picture, {"prompts": PROMPTS})
        given_back = [item.get("prompt") for item in answered.items]
        if given_back != list(PROMPTS):
            raise FaultError(f"{picture.name}: Expected {brief(list(PROMPTS))}, got {brief(given_back)}")

    def exif(self, probe: Probe) -> None:
        tried = self._looking.looks(probe)
        for look in tried:
            upright = self._look(probe, look.picture.as_jpeg()).items
            rotated = self._look(probe, look.picture.turned(told=False)).items
            marked = self._look(probe, look.picture.turned(told=True)).items
            if alike(upright, rotated, 0.1):
                continue
            if alike(marked, rotated, 0.03):
                raise FaultError(
                    f"{look.picture.name}: Expected the items of the upright image, got those of the rotated one"
                )
            if alike(marked, upright, 0.1):
                return
        raise UntestedError("The model's answers for upright and rotated images do not differ enough")

    def jpeg(self, probe: Probe) -> None:
        picture = self._looking.looks(probe)[0].picture
        self._answered(probe, picture.as_jpeg())

    def grey(self, probe: Probe) -> None:
        self._answered(probe, self._looking.looks(probe)[0].picture.as_grey())

    def alpha(self, probe: Probe) -> None:
        look = self._looking.looks(probe)[0]
        self._same(look.items, self._answered(probe, look.picture.with_alpha()))

    def sixteen_bits(self, probe: Probe) -> None:
        look = self._looking.looks(probe)[0]
        self._same(look.items, self._answered(probe, look.picture.sixteen_bits()))

    def repeated(self, probe: Probe) -> None:
        look = self._looking.looks(probe)[0]
        asked = self._looking.ask(probe, look.picture, self._looking.needed(probe))
        again = probe.send(asked.method, asked.path, body=asked.sent, headers=asked.sent_headers, fresh=True)
        first = self._looking.read(asked)
        if not again.ok or not alike(
            Look(look.picture, first).items, Look(look.picture, self._looking.read(again)).items, 0.01
        ):
            raise FaultError(f"Expected {brief(first)}, got status {again.status} {brief(again.body)}")

    def nothing(self, probe: Probe) -> None:
        self._answered(probe, PLAIN)

    def _answered(self, probe: Probe, picture: Picture) -> Sequence[Item]:
        exchange = self._looking.ask(probe, picture, self._looking.needed(probe))
        if not exchange.ok:
            raise FaultError(f"{picture.name}: Expected status 200, got {exchange.status} {brief(exchange.body)}")
        return Look(picture, self._looking.read(exchange)).items

    def _look(self, probe: Probe, picture: Picture) -> Look:
        return self._looking.look(probe, picture)

    @staticmethod
    def _same(expected: Sequence[Item], got: Sequence[Item]) -> None:
        if not alike(expected, got, 0.05):
            raise FaultError(f"Expected {brief(list(expected))}, got {brief(list(got))}")


def _scores(look: Look) -> list[float]:
    return [item["score"] for item in look.items if is_number(item.get("score"))]
