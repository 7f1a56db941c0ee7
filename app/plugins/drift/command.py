"""``charioteer drift``."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.types import ExistingDirectory, ExistingFile, ExistingPath, PositiveInt
from cyclopts.validators import Number

from app.core.cli.model_options import takes_models
from app.core.cli.terminal import check_output, console, counted, error_console, printable, reject_unused, stop
from app.core.settings.environment import HELP_FLAGS, RARE
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ModelOptions, SettingsError
from app.report import html_report, print_report, to_json
from tasks.inference.error import InferenceError

if TYPE_CHECKING:
    from app.plugins.drift.measurement import Embedder
    from app.plugins.drift.service import ModelEmbedder

_DRIFTED = 1


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of both commands for the images to measure."""

    name: str | None = None
    """Which model to run on a folder of images, if there are several."""

    embedder: Annotated[ExistingPath | None, RARE] = None
    """ONNX graph that makes embeddings from FP32 [n, 3, height, width] RGB 0..1, or the folder of a model that returns
    vectors for images; by default the bundled graph, or the one beside the baseline."""

    limit: PositiveInt = 2000
    """Maximum number of images: a random choice from a folder, the newest from recordings."""

    since: str | None = None
    """Only recordings from this time on: 2026-11-05T12:30:00Z, 2026-11-05, or 2h, 7d ago."""

    until: Annotated[str | None, RARE] = None
    """Only recordings before this time."""

    recorded_model: str | None = None
    """Only recordings of this model."""

    where: list[str] | None = None
    """Only recordings with this metadata, such as 'camera = "north"'; may be repeated."""

    reason: Annotated[str | None, RARE] = None
    """Only recordings for this reason, as in charioteer inferences; by default all but trials, such as those of the
    page."""

    images: ExistingDirectory | None = None
    """Folder of recorded images (--record-images)."""


drift = App(name="drift", help_flags=HELP_FLAGS, help="Detect drift in images and in a model's predictions.")


@drift.command
@takes_models
def baseline(
    source: str,
    *,
    out: Path = Path("drift-baseline.npz"),
    embeddings: bool = True,
    ignore: list[str] | None = None,
    images: ImageOptions = ImageOptions(),
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Measure images from a normal period, and write the measurements to a baseline file.

    Args:
        source: Folder of images, a source of `charioteer run`, or a recording store (the value of --record).
        out: Baseline file. `charioteer serve --drift` watches a model that has a drift-baseline.npz in its folder.
        embeddings: Whether to compute embeddings.
        ignore: Leave out this metadata key, whose values change by design, such as a session; may be repeated.
        images: Which images to measure.
        options: Which model to run on a folder of images; none by default. Recordings already hold predictions.
    """
    from app.plugins.drift.baseline import Baseline, write_baseline
    from app.plugins.drift.measurement import BUNDLED
    from app.plugins.drift.sample import DriftError
    from app.plugins.drift.source import measure_source

    try:
        check_output(out)
        if not embeddings:
            reject_unused("with --no-embeddings; leave one of them out", {"--embedder": images.embedder})
        embedding_model = _open_embedder(images.embedder or BUNDLED, options) if embeddings else None
        model = _model(options, images, source)
        measured = measure_source(source, images, model, embedding_model)
        # Without pixels, nothing was embedded.
        used = embedding_model if measured.sample.embeddings.shape[1] else None
        new_baseline = Baseline(
            sample=measured.sample.without_metadata(ignore or ()),
            embedder=used.name if used else "",
            embedder_digest=used.digest if used else "",
            model=model.name if model else images.recorded_model or "",
            source=_name_of(source),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        write_baseline(out, new_baseline)
    except (DriftError, ModelError, SettingsError, InferenceError, OSError) as error:
        stop(error)
    _print_skipped(measured.skipped)
    sample = measured.sample
    numbers = f"{len(sample.features)} numbers, {sample.embeddings.shape[1]} of an embedding"
    counts = f"{counted(len(sample), 'image')}, {numbers}, {counted(len(sample.labels), 'label')}"
    console().print(f"Wrote {printable(out)}: {counts}", soft_wrap=True)


@drift.command
@takes_models
def check(
    baseline: ExistingFile,
    source: str,
    *,
    alpha: Annotated[float, Parameter(validator=Number(gt=0, lt=1))] = 0.01,
    json: Path | None = None,
    html: Path | None = None,
    fail_on_drift: Annotated[bool, Parameter(negative="")] = False,
    images: ImageOptions = ImageOptions(),
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Compare images with a baseline.

    Exits with 0, even if there is drift; with --fail-on-drift, with 1 on drift; with 2 when the check cannot run.

    Args:
        baseline: File that `charioteer drift baseline` wrote.
        source: Folder of images, a source of `charioteer run`, or a recording store (the value of --record).
        alpha: Probability of a false drift verdict when nothing has changed.
        json: Write the report to this file as JSON.
        html: Write the report to this file as a page.
        fail_on_drift: Exit with 1 when there is drift.
        images: Which images to measure.
        options: Which model to run on a folder of images; none by default. Recordings already hold predictions.
    """
    from app.plugins.drift.baseline import read_baseline
    from app.plugins.drift.comparison import compare
    from app.plugins.drift.hypothesis_tests import import_scipy
    from app.plugins.drift.presentation import present
    from app.plugins.drift.sample import DriftError
    from app.plugins.drift.service import embedder_for
    from app.plugins.drift.source import measure_source

    try:
        import_scipy()  # before images are measured, which can take minutes
        check_output(json, html)
        baseline_data = read_baseline(baseline)
        if not baseline_data.embedder:
            reject_unused("on a baseline without embeddings; leave it out", {"--embedder": images.embedder})
        given = _open_embedder(images.embedder, options) if images.embedder else None
        embedding_model = embedder_for(baseline_data, [baseline.parent], given)
        measured = measure_source(source, images, _model(options, images, source), embedding_model)
        comparison = compare(baseline_data.sample, measured.sample, alpha=alpha)
        names = (baseline_data.source or baseline.name, _name_of(source))
        if json:
            json.write_bytes(to_json(comparison))
        if html:
            samples = (baseline_data.sample, measured.sample)
            html.write_bytes(html_report(present(comparison, names, samples, measured.image_bytes)))
    except (DriftError, ModelError, SettingsError, InferenceError, OSError) as error:
        stop(error)
    _print_skipped(measured.skipped)
    print_report(present(comparison, names), console())
    if comparison.drifted and fail_on_drift:
        sys.exit(_DRIFTED)


def _model(options: ModelOptions, images: ImageOptions, source: str) -> ModelSource | None:
    """Return the model that `options` name, None if they name none; reject options that do not apply to `source`.

    Recordings already hold predictions, so the MODEL_DIR of a container applies only to folders of images.
    """
    from app.plugins.drift.source import has_images

    of_images = has_images(source)
    if of_images:
        filters = {"--since": images.since, "--until": images.until, "--recorded-model": images.recorded_model}
        filters |= {"--where": images.where, "--images": images.images}
        reject_unused("on a folder of images; it is for recordings", filters)
    elif "://" in source or Path(source).exists():
        reject_unused("on recordings; use --recorded-model to choose a model", {"--name": images.name})
    by_environment = options.model is None and options.model_repository is None
    if by_environment and (options.model_dir is None or not of_images):
        return None
    from app.inputs import choose_model

    return choose_model(options, images.name)


def _open_embedder(path: Path, options: ModelOptions) -> "Embedder | ModelEmbedder":
    """Return the embedder in an ONNX file, or in the folder of a model, which loads with the same `options`."""
    from app.core.assembly.models import load
    from app.inputs import choose_model
    from app.plugins.drift.service import ModelEmbedder, load_embedder

    if path.is_file():
        return load_embedder(path)
    source = choose_model(replace(options, demo=False, model=path, model_repository=None, model_name=None), None)
    servable = load(source)
    return ModelEmbedder(source, servable.description, lambda: servable)


def _name_of(source: str) -> str:
    """Return the name of a source for reports, without the user and password of a store."""
    if source.startswith(("postgres", "sqlite:")) and "://" in source:
        return "recordings"
    return Path(source).name.encode(errors="backslashreplace").decode()


def _print_skipped(skipped: Mapping[str, int]) -> None:
    for reason, count in skipped.items():
        error_console().print(printable(f"{counted(count, 'image')} {reason}"))
