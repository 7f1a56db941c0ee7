"""Compare a shadow version with its champion: how often they agree, and which is right more often."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.clients.protocol import Records
from app.plugins.evaluation.agreement import partners
from app.plugins.evaluation.answers import parse_records
from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.metrics.intervals import Estimate, wilson
from app.plugins.shadow.rows import ComparedInference, ShadowAnswer
from app.plugins.shadow.statistics import losing, needed_images, pair
from tasks.task import TaskType

MIN_TRUTHS = 30
"""Fewer images with a truth decide nothing."""
_MAX_CLASS_LOSS = 0.05
_MIN_CLASS_IMAGES = 30

Counts = Mapping[str, tuple[int, int, int]]
"""Right, wrong and missed objects, or images, by label."""
JudgedImage = tuple[Counts, Counts]
"""What the champion and the shadow version find of an image that has a truth."""


class VersionAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How often two versions agree."""

    images: int  # number of images that both answered
    failed: int  # number of images that the shadow version did not answer
    agreed: Estimate  # share of images with the same answer
    mean_iou: float | None  # mean IoU of objects with partners; None without objects
    score_difference: float  # mean of the largest difference of scores in an image
    # Median milliseconds of the shadow version's model, divided by the champion's. It is an upper bound,
    # because the shadow version runs with low priority.
    time_ratio: float


class ShadowVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a shadow version may replace its champion, by F1 of both; of classes by accuracy."""

    images: int  # number of images with a truth that both versions can be compared with
    champion: float
    shadow: float  # of the shadow version
    difference: Estimate  # the second minus the first
    reasons: Sequence[str]  # why it may not; empty if it may
    needed: int  # about how many images with truths decide, if these are too few; 0 otherwise


def agreement_of(answers: Sequence[ShadowAnswer]) -> VersionAgreement:
    """Return the agreement in the answers of one shadow version, at least one without an error."""
    answered = [answer for answer in answers if answer.agreed is not None]
    ious = [row.mean_iou for row in answered if row.mean_iou is not None]
    milliseconds = [(row.champion_ms or 0.0, row.shadow_ms or 0.0) for row in answered]
    champion_ms, shadow_ms = np.median(milliseconds, axis=0).tolist()
    return VersionAgreement(
        images=len(answered),
        failed=len(answers) - len(answered),
        agreed=wilson(sum(bool(row.agreed) for row in answered) / len(answered), len(answered)),
        mean_iou=float(np.mean(ious)) if ious else None,
        score_difference=float(np.mean([row.score_difference or 0.0 for row in answered])),
        time_ratio=shadow_ms / champion_ms if champion_ms else 1.0,
    )


def judge_image(compared: ComparedInference) -> JudgedImage | None:
    """Compare both answers with the truth; None for texts, and if the truth is incomplete or a record is missing.

    Raise ValueError when records cannot be read, such as redacted ones.
    """
    inference = compared.inference
    truth, before, after = inference.truth, inference.records, compared.answer.records
    if truth is None or before is None or after is None:
        return None
    if truth.records is not None and truth.complete:
        right: Records = truth.records
    elif truth.records is None and truth.verdict == "right":
        right = before
    else:
        return None
    task, image = TaskType(inference.task_type), inference.image
    if task.returns == "texts":
        return None
    width, height = (image.width, image.height) if image else (0, 0)
    item = Item(id=inference.id, image=Path(inference.id), width=width, height=height)
    return _counts(before, right, item, task), _counts(after, right, item, task)


def _counts(records: Records, right: Records, item: Item, task: TaskType) -> Counts:
    """Return right, wrong and missed by label: of the best class, or of objects with IoU 0.5 or more."""
    found = sorted(parse_records(records, item, task).predictions, key=lambda one: -one.score)
    true = parse_records([{"score": 1.0, **record} for record in right], item, task).predictions
    if task.returns == "classes":
        found, true = found[:1], true[:1]
        hits = Counter(one.label for one, other in zip(found, true, strict=False) if one.label == other.label)
    else:
        hits = Counter(one.label for _, one, _ in partners(found, true))
    wrong, missed = (Counter(one.label for one in ones) - hits for ones in (found, true))
    return {label: (hits[label], wrong[label], missed[label]) for label in {*hits, *wrong, *missed}}


def shadow_verdict(judged: Sequence[JudgedImage], margin: float) -> ShadowVerdict:
    """Return whether the shadow version is not inferior by more than `margin`, 0..1, from at least one image."""
    scores = pair(*_sums(judged))
    difference = scores.difference()
    by_label = defaultdict[str, list[JudgedImage]](list)
    for image in judged:
        for label, (right, _, missed) in image[0].items():
            if right + missed:  # it is in the truth
                by_label[label].append(image)
    frequent = {
        label: pair(*_sums(images, label)) for label, images in by_label.items() if len(images) >= _MIN_CLASS_IMAGES
    }
    lost = losing(frequent, _MAX_CLASS_LOSS)
    reasons, needed = [f"{label} loses more than {_MAX_CLASS_LOSS:g}" for label in lost], 0
    if difference.low <= -margin:
        reasons.insert(0, f"the loss may be {-difference.low:.4f}, and the margin is {margin:g}")
        if difference.high > -margin:
            needed = needed_images(scores, margin)
    if len(judged) < MIN_TRUTHS:
        reasons.insert(0, f"at least {MIN_TRUTHS} images with truths are needed, and there are {len(judged)}")
        needed = max(needed, MIN_TRUTHS)
    return ShadowVerdict(
        images=len(judged),
        champion=scores.champion,
        shadow=scores.shadow,
        difference=difference,
        reasons=reasons,
        needed=needed,
    )


def _sums(judged: Sequence[JudgedImage], label: str | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (N, 3) right, wrong and missed of each image, of all labels or of one, of both versions."""

    def total(counts: Counts) -> list[int]:
        chosen = counts.values() if label is None else [counts.get(label, (0, 0, 0))]
        return [sum(column) for column in zip((0, 0, 0), *chosen, strict=True)]

    champion, shadow = (np.array([*map(total, version)], np.float64) for version in zip(*judged, strict=True))
    return champion, shadow
