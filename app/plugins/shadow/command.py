"""``charioteer shadow``."""

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.types import NormFloat, PositiveInt

from app.core.cli.terminal import console, counted, printable, reject_unused, stop, table
from app.core.settings.server import SettingsError
from app.plugins.evaluation.metrics.intervals import Estimate
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.shadow.report import Agreement, JudgedImage, Verdict, agreement_of, judge, verdict_of
from app.plugins.shadow.rows import ShadowRow, read_rows
from tasks.inference.error import InferenceError

_MARGIN = 0.01
_INFERIOR = 1
_MAX_LISTED = 10
_NO_VALUE = "(none)"


def shadow(
    store: str,
    action: Literal["report"] = "report",
    *,
    model: str | None = None,
    version: str | None = None,
    truth: Annotated[bool, Parameter(negative="")] = False,
    margin: NormFloat = _MARGIN,
    slice: str | None = None,  # noqa: A002
    limit: PositiveInt = 10_000,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Compare a shadow version with the version that clients get, from what both answered.

    Exits with 1 if --truth shows that the shadow version may be worse, and with 2 when nothing can be compared.

    Args:
        store: Recording store (the value of --record).
        action: What to do.
        model: Model name, if the store has several with shadow versions.
        version: The shadow version, if the store has several.
        truth: Use the truths of images to decide whether it may replace the champion.
        margin: Largest accepted loss of accuracy or F1.
        slice: Metadata key by whose values to split the figures.
        limit: Maximum number of images, the newest.
        json: Print JSON.
    """
    del action
    if not truth:
        reject_unused("without --truth, which compares with truths", {"--margin": margin != _MARGIN})
    try:
        reader = RecordingReader(parse_dsn(store))
        rows = read_rows(reader, model, version, limit)
        if len(pairs := sorted({(row.model, row.champion, row.version) for row in rows})) > 1:
            found = ", ".join(f"{model} {champion} and {version}" for model, champion, version in pairs)
            stop(f"Expected shadow answers of one pair of versions, got {found}; choose with --model, --version")
        inferences = {one.id: one for batch in reader.batches_of([row.id for row in rows]) for one in batch}
    except (InferenceError, SettingsError) as error:
        stop(error)
    if not any(row.agreed is not None for row in rows):
        stop("There are no shadow answers to compare")
    metadata = {name: {entry.key: entry.value for entry in reversed(one.metadata)} for name, one in inferences.items()}
    slices = {row.id: str(metadata.get(row.id, {}).get(slice, _NO_VALUE)) for row in rows if slice is not None}
    agreement = agreement_of(rows, slices)
    judged: list[JudgedImage] = []
    unreadable = 0
    for row in rows if truth else ():
        try:
            image = judge(row, inferences[row.id]) if row.id in inferences else None
        except ValueError:
            unreadable += 1
        else:
            judged += [] if image is None else [image]
    if truth and not judged:
        stop("No image that both versions answered has a complete truth; import truths of recorded inferences first")
    verdict = verdict_of(judged, slices, margin) if truth else None
    differing = [row.id for row in rows if row.agreed is False]
    if json:
        found = {"agreement": agreement, "verdict": verdict, "differing": differing, "unreadable": unreadable}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    else:
        _print(rows[0], agreement, verdict, differing, slice)
        if unreadable:
            console().print(f"{counted(unreadable, 'image')} cannot be compared, such as redacted answers")
    if verdict is not None and verdict.reasons:
        stop(f"version {rows[0].version} may be worse: {'; '.join(verdict.reasons)}", _INFERIOR)


def _print(
    row: ShadowRow, agreement: Agreement, verdict: Verdict | None, differing: Sequence[str], key: str | None
) -> None:
    out = console()
    out.print(printable(f"{row.model}: shadow version {row.version} against {row.champion}"))
    figures = table("figure", "images", "value", "95 % interval")
    figures.add_row("same answer", str(agreement.images), *_cells(agreement.agreed))
    for value, (count, estimate) in agreement.slices.items():
        figures.add_row(printable(f"  {key} = {value}"), str(count), *_cells(estimate))
    if agreement.mean_iou is not None:
        figures.add_row("mean IoU of partners", "", f"{agreement.mean_iou:.4f}", "")
    figures.add_row("mean of largest score difference", "", f"{agreement.score_difference:.4f}", "")
    figures.add_row("time of the model, ratio of medians", "", f"{agreement.time_ratio:.2f}", "")
    figures.add_row("not answered", str(agreement.failed), "", "")
    if verdict is not None:
        figures.add_row("champion, accuracy or F1", str(verdict.images), f"{verdict.all.champion:.4f}", "")
        figures.add_row("shadow, accuracy or F1", str(verdict.images), f"{verdict.all.shadow:.4f}", "")
        figures.add_row("difference", str(verdict.images), *_cells(verdict.all.difference))
        for value, (count, comparison) in verdict.slices.items():
            figures.add_row(printable(f"  {key} = {value}"), str(count), *_cells(comparison.difference))
        figures.add_row("McNemar's test of right images", str(verdict.images), f"p = {verdict.p_value:.4f}", "")
    out.print(figures)
    if differing:
        more = f" and {len(differing) - _MAX_LISTED} more (--json)" if len(differing) > _MAX_LISTED else ""
        out.print(f"Different answers: {', '.join(differing[:_MAX_LISTED])}{more}", soft_wrap=True)
    if verdict is not None:
        if verdict.needed > verdict.images:
            out.print(
                f"Too few truths: about {verdict.needed - verdict.images} more decide. Fix the number beforehand."
            )
        elif not verdict.reasons:
            out.print("It is not worse by more than the margin. This holds for one look: repeated ones find more.")


def _cells(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.4f}", f"{estimate.low:.4f} to {estimate.high:.4f}"
