"""``charioteer shadow``."""

import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NormFloat, PositiveInt

from app.core.cli.terminal import console, counted, reject_unused, stop
from app.core.settings.server import SettingsError
from app.plugins.evaluation.metrics.intervals import Estimate
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.shadow.report import (
    JudgedImage,
    ShadowVerdict,
    VersionAgreement,
    agreement_of,
    judge_image,
    shadow_verdict,
)
from app.plugins.shadow.rows import ComparedInference, read_compared
from app.report import Cell, Report, Table, print_report, to_json
from tasks.inference.error import InferenceError

_MARGIN = 0.01
_INFERIOR = 1
_MAX_LISTED = 10


def shadow(
    store: str,
    *,
    model: str | None = None,
    version: str | None = None,
    truth: Annotated[bool, Parameter(negative="")] = False,
    margin: NormFloat = _MARGIN,
    limit: PositiveInt = 10_000,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Compare a shadow version with the version that clients get, from what both answered.

    Exits with 1 if --truth shows that the shadow version may be worse, and with 2 when nothing can be compared.

    Args:
        store: Recording store (the value of --record).
        model: Model name, if the store has several with shadow versions.
        version: The shadow version, if the store has several.
        truth: Use the truths of images to decide whether it may replace the champion.
        margin: Largest accepted loss of accuracy or F1.
        limit: Maximum number of images, the newest.
        json: Print JSON.
    """
    if not truth:
        reject_unused("without --truth, which compares with truths", {"--margin": margin != _MARGIN})
    try:
        reader = RecordingReader(parse_dsn(store))
        compared = read_compared(reader, model, version, limit)
        if len(pairs := sorted(set(map(_pair, compared)))) > 1:
            found = ", ".join(f"{model} {champion} and {version}" for model, champion, version in pairs)
            stop(f"Expected shadow answers of one pair of versions, got {found}; choose with --model, --version")
    except (InferenceError, SettingsError) as error:
        stop(error)
    answered = [one for one in compared if one.answer.agreed is not None]
    if not answered:
        stop("There are no shadow answers to compare")
    # Rules select differing images more often than others.
    is_sampled = any(one.inference.reason is None for one in answered)
    agreement = agreement_of([one.answer for one in compared if one.inference.reason is None or not is_sampled])
    judged: list[JudgedImage] = []
    unreadable = 0
    for one in compared if truth else ():
        try:
            image = judge_image(one)
        except ValueError:
            unreadable += 1
        else:
            judged += [] if image is None else [image]
    if truth and not judged:
        stop("No image that both versions answered has a complete truth; import truths of recorded inferences first")
    verdict = shadow_verdict(judged, margin) if truth else None
    differing = [one.inference.id for one in compared if one.answer.agreed is False]
    if json:
        found = {"agreement": agreement, "verdict": verdict, "differing": differing, "unreadable": unreadable}
        sys.stdout.write(to_json(found).decode() + "\n")
    else:
        print_report(_present(pairs[0], agreement, verdict, differing, unreadable), console())
    if verdict is not None and verdict.reasons:
        stop(f"version {pairs[0][2]} may be worse: {'; '.join(verdict.reasons)}", _INFERIOR)


def _pair(compared: ComparedInference) -> tuple[str, str, str]:
    """Return the model, the version that answered, and the shadow version."""
    return compared.inference.model, compared.inference.version, compared.answer.version


def _present(
    pair: tuple[str, str, str],
    agreement: VersionAgreement,
    verdict: ShadowVerdict | None,
    differing: Sequence[str],
    unreadable: int,
) -> Report:
    model, champion, version = pair
    rows: list[tuple[Cell, ...]] = [("same answer", agreement.images, *_cells(agreement.agreed))]
    if agreement.mean_iou is not None:
        rows.append(("mean IoU of partners", "", agreement.mean_iou, ""))
    rows.append(("mean of largest score difference", "", agreement.score_difference, ""))
    rows.append(("time of the model, ratio of medians", "", f"{agreement.time_ratio:.2f}", ""))
    rows.append(("not answered", agreement.failed, "", ""))
    notes: list[str] = []
    if differing:
        more = f" and {len(differing) - _MAX_LISTED} more (--json)" if len(differing) > _MAX_LISTED else ""
        notes.append(f"Different answers: {', '.join(differing[:_MAX_LISTED])}{more}")
    if verdict is not None:
        rows.append(("champion, accuracy or F1", verdict.images, verdict.champion, ""))
        rows.append(("shadow, accuracy or F1", verdict.images, verdict.shadow, ""))
        rows.append(("difference", verdict.images, *_cells(verdict.difference)))
        if verdict.needed > verdict.images:
            missing = verdict.needed - verdict.images
            notes.append(f"Too few truths: about {missing} more decide. Fix the number beforehand.")
        elif not verdict.reasons:
            notes.append("It is not worse by more than the margin. This holds for one look: repeated ones find more.")
    if unreadable:
        notes.append(f"{counted(unreadable, 'image')} cannot be compared, such as redacted answers")
    return Report(
        title=f"{model}: shadow version {version} against {champion}",
        tables=[Table(title="", columns=("figure", "images", "value", "95 % interval"), rows=tuple(rows))],
        notes=notes,
    )


def _cells(estimate: Estimate) -> tuple[float, str]:
    return estimate.value, f"{estimate.low:.4f} to {estimate.high:.4f}"
