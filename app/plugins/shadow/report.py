"""Compare a shadow version with its champion: how often they agree, and which is right more often."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import numpy as np

from app.plugins.evaluation.agreement import partners
from app.plugins.evaluation.answers import parse_records
from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.metrics.bootstrap import Estimate, Floats
from app.plugins.evaluation.runner import Records
from app.plugins.recording.inference import RecordedInference
from app.plugins.shadow.rows import ShadowRow
from app.plugins.shadow.statistics import Comparison, compare, losing, mcnemar, needed_images, share
from tasks.task import TaskType

T = TypeVar("T")

_MAX_CLASS_LOSS = 0.05
_MIN_CLASS_IMAGES = 30

Counts = Mapping[str, tuple[int, int, int]]
"""Right, wrong and missed objects, or images, by label."""


class JudgedImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image with a truth, and what both versions find of it."""

    row: ShadowRow
    champion: Counts
    shadow: Counts

    @property
    def true_labels(self) -> Collection[str]:
        """Return the labels of its truth."""
        return [label for label, (right, _, missed) in self.champion.items() if right + missed]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How often two versions agree.

    Attributes:
        images: number of images that both answered.
        failed: number of images that the shadow version did not answer.
        agreed: share of images with the same answer.
        mean_iou: mean IoU of objects with partners; None without objects.
        score_difference: mean of the largest difference of scores in an image.
        time_ratio: median milliseconds of the shadow version's model, divided by that of the champion. It is an upper
            bound, because the shadow version runs with low priority.
        slices: the share that agrees by value of the metadata key.
    """

    images: int
    failed: int
    agreed: Estimate
    mean_iou: float | None
    score_difference: float
    time_ratio: float
    slices: Mapping[str, tuple[int, Estimate]]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a shadow version may replace its champion.

    Attributes:
        images: number of images with a truth that both versions can be compared with.
        all: the comparison of all images.
        slices: the comparison by value of the metadata key.
        p_value: of McNemar's test on images whose answer is completely right.
        reasons: why it may not; empty if it may.
        needed: about how many images with truths decide, if these are too few; 0 otherwise.
    """

    images: int
    all: Comparison
    slices: Mapping[str, tuple[int, Comparison]]
    p_value: float
    reasons: Sequence[str]
    needed: int


def agreement_of(rows: Sequence[ShadowRow], slices: Mapping[str, str]) -> Agreement:
    """Return the agreement in at least one row with an answer.

    Args:
        rows: the rows of one shadow version.
        slices: the value of the metadata key by id; empty without a key.
    """
    answered = [row for row in rows if row.agreed is not None]

    ious = [row.mean_iou for row in answered if row.mean_iou is not None]
    milliseconds = [(row.champion_ms or 0.0, row.shadow_ms or 0.0) for row in answered]
    champion_ms, shadow_ms = np.median(milliseconds, axis=0).tolist()
    groups = _grouped(answered, lambda row: slices.get(row.id))
    return Agreement(
        images=len(answered),
        failed=len(rows) - len(answered),
        agreed=share([bool(row.agreed) for row in answered]),
        mean_iou=float(np.mean(ious)) if ious else None,
        score_difference=float(np.mean([row.score_difference or 0.0 for row in answered])),
        time_ratio=shadow_ms / champion_ms if champion_ms else 1.0,
        slices={value: (len(group), share([bool(row.agreed) for row in group])) for value, group in groups.items()},
    )


def judge(row: ShadowRow, inference: RecordedInference) -> JudgedImage | None:
    """Compare both answers with the truth; None for texts, and if the truth is incomplete or a record is missing.

    Raises:
        ValueError: when records cannot be read, such as redacted ones.
    """
    truth, before = inference.truth, inference.records
    if truth is None or before is None or row.records is None:
        return None
    if truth.records is not None and truth.complete:
        right: Records = truth.records
    elif truth.verdict == "right":
        right = before
    else:
        return None
    after: Records = msgspec.json.decode(row.records, type=list[dict[str, object]])
    task, image = TaskType(inference.task_type), inference.image
    if task.returns == "texts":
        return None
    width, height = (image.width, image.height) if image else (0, 0)
    item = Item(id=row.id, image=Path(row.id), width=width, height=height)
    champion, shadow = (_counts(records, right, item, task) for records in (before, after))
    return JudgedImage(row=row, champion=champion, shadow=shadow)


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


def verdict_of(
    judged: Sequence[JudgedImage],
    slices: Mapping[str, str],
    margin: float,
) -> Verdict:
    """Return whether the shadow version is not inferior by more than `margin`, from at least one image.

    Args:
        judged: images with truths.
        slices: as for `agreement_of`.
        margin: largest accepted loss, 0..1.
    """
    overall, _ = _compare(judged)
    by_label: dict[str, list[JudgedImage]] = {}
    for image in judged:
        for label in image.true_labels:
            by_label.setdefault(label, []).append(image)
    frequent = {label: images for label, images in by_label.items() if len(images) >= _MIN_CLASS_IMAGES}
    draws = {label: _compare(images, label)[1] for label, images in frequent.items()}
    lost = losing(draws, _MAX_CLASS_LOSS)
    reasons, needed = [f"{label} loses more than {_MAX_CLASS_LOSS:g}" for label in lost], 0
    if overall.difference.low <= -margin:
        reasons.insert(0, f"the loss may be {-overall.difference.low:.4f}, and the margin is {margin:g}")
        if overall.difference.high > -margin:
            needed = needed_images(_sums(judged, "champion"), _sums(judged, "shadow"), margin)
    pairs = Counter((_all_right(image.champion), _all_right(image.shadow)) for image in judged)
    return Verdict(
        images=len(judged),
        all=overall,
        slices={
            value: (len(group), _compare(group)[0])
            for value, group in _grouped(judged, lambda image: slices.get(image.row.id)).items()
        },
        p_value=mcnemar(pairs[True, False], pairs[False, True]),
        reasons=reasons,
        needed=needed,
    )


def _compare(judged: Sequence[JudgedImage], label: str | None = None) -> tuple[Comparison, Floats]:
    return compare(_sums(judged, "champion", label), _sums(judged, "shadow", label))


def _sums(judged: Sequence[JudgedImage], version: Literal["champion", "shadow"], label: str | None = None) -> Floats:
    """Return (N, 3) right, wrong and missed of each image, of all labels or of one."""
    counts: list[Counts] = [getattr(image, version) for image in judged]
    return np.array(
        [
            [sum(one[index] for name, one in image.items() if label in (None, name)) for index in range(3)]
            for image in counts
        ],
        np.float64,
    )


def _all_right(counts: Counts) -> bool:
    return not any(wrong or missed for _, wrong, missed in counts.values())


def _grouped(items: Sequence[T], key: Callable[[T], str | None]) -> Mapping[str, Sequence[T]]:
    """Return the items with each value, sorted by value, without those whose value is None."""
    groups: dict[str, list[T]] = {}
    for one in items:
        if (value := key(one)) is not None:
            groups.setdefault(value, []).append(one)
    return dict(sorted(groups.items()))
