"""``charioteer drift``."""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import App, Parameter
from cyclopts.types import ExistingFile, PositiveInt
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.terminal import console
from app.settings.model import ModelError, ModelSource
from app.settings.server import ModelOptions, SettingsError
from tasks.exchange.error import InferenceError

if TYPE_CHECKING:
    from app.cli.drift_source import Measured, RecordedPart
    from app.drift.embedding import Embedder
    from app.drift.result import Comparison

__all__ = ("drift",)

_DRIFTED, _FAILED = 1, 2
_MOST = 2000

drift = App(name="drift", help="Say whether images, and what a model says of them, have changed.")


@drift.command
def baseline(
    source: str,
    *,
    out: Path = Path("drift-baseline.npz"),
    name: str | None = None,
    embedder: ExistingFile | None = None,
    embeddings: bool = True,
    limit: PositiveInt = _MOST,
    since: str | None = None,
    until: str | None = None,
    recorded_model: str | None = None,
    where: list[str] | None = None,
    images: Path | None = None,
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Measure images of a time when all was well, and keep that in a file.

    Args:
        source: A folder of images, or what --record was given.
        out: The file; called drift-baseline.npz in a model's folder, `charioteer serve --drift` watches that model.
        name: Which of several models looks at the images of a folder.
        embedder: An ONNX graph that makes embeddings, FP32 [n, 3, height, width] RGB 0..1 in; a small one comes along.
        embeddings: Whether to make embeddings at all.
        limit: Of more images so many are taken, of a folder at random, of recordings the newest.
        since: Recordings not older than this: 2026-11-05T12:30:00Z, 2026-11-05, or 2h, 7d ago.
        until: Recordings older than this.
        recorded_model: Recordings of this model.
        where: Recordings with this in their metadata, such as 'camera = "north"'; may be repeated.
        images: The folder of recorded images (--record-images).
        options: Which model looks at the images of a folder; none when absent. Recordings have their answers.
    """
    from app.assembly.drift import embedder_at
    from app.cli.drift_source import RecordedPart
    from app.drift.baseline import Baseline, write_baseline
    from app.drift.embedding import BUNDLED
    from app.drift.sample import DriftError

    part = RecordedPart(since=since, until=until, model=recorded_model, where=where or (), images=images)
    try:
        graph = embedder_at(embedder or BUNDLED) if embeddings else None
        model = _model(options, name)
        found = _measured(source, part, model, graph, limit)
        embedded = graph is not None and found.sample.embeddings.shape[1] > 0
        made = Baseline(
            sample=found.sample,
            embedder=graph.name if graph is not None and embedded else "",
            embedder_digest=graph.digest if graph is not None and embedded else "",
            model=model.name if model else recorded_model or "",
            source=Path(source).name if "://" not in source else "recordings",
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        write_baseline(out, made)
    except (DriftError, ModelError, SettingsError, InferenceError, OSError) as error:
        _stop(error)
    _tell_skipped(found.skipped)
    sample = found.sample
    told = f"{len(sample)} images, {len(sample.features)} numbers, {sample.embeddings.shape[1]} of an embedding"
    console().print(f"Wrote {escape(str(out))}: {told}, {len(sample.labels)} labels", soft_wrap=True)


@drift.command
def check(
    baseline: ExistingFile,
    source: str,
    *,
    slice: list[str] | None = None,  # noqa: A002
    alpha: Annotated[float, Parameter(validator=Number(gt=0, lt=1))] = 0.01,
    json: Path | None = None,
    html: Path | None = None,
    fail_on_drift: Annotated[bool, Parameter(negative="")] = False,
    name: str | None = None,
    embedder: ExistingFile | None = None,
    limit: PositiveInt = _MOST,
    since: str | None = None,
    until: str | None = None,
    recorded_model: str | None = None,
    where: list[str] | None = None,
    images: Path | None = None,
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Hold images against a baseline.

    Exits with 0 whatever is found; with --fail-on-drift, with 1 when it is drift; with 2 when nothing can be said.

    Args:
        baseline: What `charioteer drift baseline` wrote.
        source: A folder of images, or what --record was given.
        slice: Look at the images of each value of this metadata too ("folder", of a folder's images); may be repeated.
        alpha: The chance of a verdict of drift where nothing has changed.
        json: A file for the report as JSON.
        html: A file for the report as a page.
        fail_on_drift: Exit with 1 when there is drift.
        name: Which of several models looks at the images of a folder.
        embedder: The ONNX graph that made the baseline's embeddings, where it is not beside it.
        limit: Of more images so many are taken, of a folder at random, of recordings the newest.
        since: Recordings not older than this: 2026-11-05T12:30:00Z, 2026-11-05, or 2h, 7d ago.
        until: Recordings older than this.
        recorded_model: Recordings of this model.
        where: Recordings with this in their metadata, such as 'camera = "north"'; may be repeated.
        images: The folder of recorded images (--record-images).
        options: Which model looks at the images of a folder; none when absent. Recordings have their answers.
    """
    from app.assembly.drift import embedder_of
    from app.cli.drift_source import RecordedPart
    from app.drift.baseline import read_baseline
    from app.drift.comparison import compared
    from app.drift.report import html_report, json_report
    from app.drift.sample import DriftError

    part = RecordedPart(since=since, until=until, model=recorded_model, where=where or (), images=images)
    try:
        kept = read_baseline(baseline)
        graph = embedder_of(kept, [baseline.parent], embedder)
        found = _measured(source, part, _model(options, name), graph, limit)
        comparison = compared(kept.sample, found.sample, alpha=alpha, slices=slice or ())
        if json:
            json.write_bytes(json_report(comparison))
        if html:
            names = kept.source or baseline.name, Path(source).name if "://" not in source else "recordings"
            html.write_bytes(html_report(comparison, kept.sample, found.sample, names, found.picture))
    except (DriftError, ModelError, SettingsError, InferenceError, OSError) as error:
        _stop(error)
    _tell_skipped(found.skipped)
    _print(comparison)
    if comparison.drifted and fail_on_drift:
        sys.exit(_DRIFTED)


def _model(options: ModelOptions, name: str | None) -> ModelSource | None:
    """The model that is asked for, if one is."""
    if options.model is None and options.model_repository is None and options.model_dir is None:
        return None
    from app.cli.choice import chosen

    return chosen(options, name)


def _measured(
    source: str, part: "RecordedPart", model: ModelSource | None, embedder: "Embedder | None", limit: int
) -> "Measured":
    from app.cli.drift_source import measured

    with Console(stderr=True).status("Measuring ...") as status:
        return measured(source, part, model, embedder, limit, lambda count: status.update(f"Measured {count} images"))


def _print(found: "Comparison") -> None:
    printed = console()
    table = Table("test", "of", "most", "p", "corrected p", "")
    for each in found.tests:
        verdict = "[red]drifted[/red]" if each.drifted else "no drift seen"
        table.add_row(
            each.name, escape(each.about), _shown(each.where), f"{each.p:.2g}", f"{each.adjusted:.2g}", verdict
        )
    printed.print(table)
    for each in found.slices:
        verdict = "too few images" if each.q is None else f"corrected p {each.q:.2g}"
        drifted = " [red]drifted[/red]" if each.drifted else ""
        place = _shown(f"{each.key} = {each.value}")
        printed.print(f"{place}: {each.baseline} and {each.production} images, {verdict}{drifted}")
    for note in found.notes:
        printed.print(_shown(note))
    if unknown := [each.label for each in found.labels if not each.known]:
        printed.print(f"Not in the baseline: {_shown(', '.join(unknown[:20]))}")
    printed.print(
        f"Similarity to the baseline {found.production_similarity:.3f}, of the baseline itself "
        f"{found.baseline_similarity:.3f}"
    )
    printed.print("[red]Drift was found[/red]" if found.drifted else "No drift was found")


def _shown(text: str) -> str:
    """What folders and senders are called may steer a terminal."""
    return escape(text if text.isprintable() else repr(text))


def _tell_skipped(skipped: Mapping[str, int]) -> None:
    for why, count in skipped.items():
        Console(stderr=True).print(f"{count} images {why}")


def _stop(error: Exception) -> NoReturn:
    """End with the status of what cannot be said."""
    sys.stderr.write(f"charioteer: {error}\n")
    sys.exit(_FAILED)
