"""Read the images for drift measurement: from a folder, or from recordings."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from app.cli.model.inputs import predict_records
from app.cli.terminal import Bar, progress
from app.drift.measurement import DriftInput, Embedder, measure_images, metadata_texts
from app.drift.sample import DriftError, Observation, Sample, build_sample
from app.evaluation.datasets.files import list_images
from app.settings.inference_query import NO_ERROR, InferenceQuery
from app.settings.model import ModelSource
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.vision.header import image_size
from tasks.vision.image import Image, check_size, decode_image

if TYPE_CHECKING:
    from app.cli.recorded.drift import ImageOptions

_SEED = 0


class MeasuredImages(msgspec.Struct, frozen=True, eq=False):
    """A sample, and access to its images.

    Attributes:
        sample: the measurements.
        image_bytes: returns an image file's bytes by image id, None if it no longer exists.
        skipped: number of skipped images by reason.
    """

    sample: Sample
    image_bytes: Callable[[str], bytes | None]
    skipped: Mapping[str, int]


def measure_source(
    source: str,
    options: "ImageOptions",
    model: ModelSource | None,
    embedder: Embedder | None,
) -> MeasuredImages:
    """Measure the images of a folder, or of recordings.

    Args:
        source: a folder, or a recording store (the value of --record).
        options: which images to read.
        model: runs on the images of a folder, if given; recordings already hold predictions.
        embedder: computes embeddings, if given.

    Raises:
        DriftError: when there are too few images, or their task types differ.
        InferenceError: when recordings cannot be read, or the model fails.
        SettingsError: when the address of the recordings is invalid.
    """
    skipped = Counter[str]()
    with progress("Measuring images") as bar:
        try:
            if Path(source).is_dir():
                return _measure_folder(source, options.limit, model, embedder, bar, skipped)
            if "://" not in source and not Path(source).exists():
                raise DriftError(f"There is no folder or file {source}")
            return _measure_recordings(source, options, embedder, bar, skipped)
        except DriftError as error:
            reasons = [f"{count} images {reason}" for reason, count in skipped.items()]
            raise DriftError("; ".join([str(error), *reasons])) from None


def _measure_folder(
    source: str,
    max_images: int,
    model: ModelSource | None,
    embedder: Embedder | None,
    bar: Bar,
    skipped: Counter[str],
) -> MeasuredImages:
    """Measure the image files below a folder; their metadata is the path of their folder."""
    from app.assembly.models import load

    folder = Path(source)
    files = list_images(folder)
    if not files:
        raise DriftError(f"There are no images in {folder}")
    if len(files) > max_images:
        rows: list[int] = np.sort(np.random.default_rng(_SEED).choice(len(files), max_images, replace=False)).tolist()
        skipped["left out, because there are more than --limit"] = len(files) - max_images
        files = [files[row] for row in rows]
    servable = load(model) if model else None

    def samples() -> Iterator[DriftInput]:
        for file in files:
            try:
                data = file.read_bytes()
                image = _decoded(data)
            except (InferenceError, OSError):
                skipped["not readable as images"] += 1
                continue
            try:
                records = predict_records(servable, model.name, data) if servable and model else None
            except InferenceError:
                skipped["without an answer of the model"] += 1
                continue
            relative_path = file.relative_to(folder)
            yield DriftInput(
                id=str(relative_path),
                image=image,
                records=None if records is None else [msgspec.structs.asdict(record) for record in records],
                metadata={"folder": str(relative_path.parent)} if len(relative_path.parts) > 1 else {},
            )

    def image_bytes(name: str) -> bytes | None:
        return (folder / name).read_bytes() if (folder / name).is_file() else None

    task_type = servable.description.task_type if servable else ""
    observations = _with_progress(measure_images(samples(), task_type, embedder), bar, len(files))
    return MeasuredImages(build_sample(observations, task_type, source), image_bytes, skipped)


def _measure_recordings(
    source: str, options: "ImageOptions", embedder: Embedder | None, bar: Bar, skipped: Counter[str]
) -> MeasuredImages:
    from app.recording.inference import RecordedInference
    from app.recording.query.reader import open_recordings
    from app.recording.row_converter import REDACTED

    query = InferenceQuery(
        since=options.since,
        until=options.until,
        model=options.recorded_model,
        error=NO_ERROR,
        where=options.where or (),
    )
    reader = open_recordings(source, options.images)
    tasks: set[str] = set()
    models: set[str] = set()
    inferences: dict[str, RecordedInference] = {}

    def image_of(inference: RecordedInference) -> Image | None:
        if (data := reader.image(inference)) is not None:
            with suppress(InferenceError):
                return _decoded(data)
        skipped["without their pixels"] += 1
        return None

    def samples() -> Iterator[DriftInput]:
        for batch in reader.batches(query, options.limit):
            for inference in batch:
                if inference.image is None or inference.explanation:
                    skipped["of no image, or explanations"] += 1
                    continue
                tasks.add(inference.task_type)
                models.add(inference.model)
                inferences[inference.id] = inference
                yield DriftInput(
                    id=inference.id,
                    image=image_of(inference),
                    records=inference.records,
                    metadata={
                        "model": inference.model,
                        # A redacted value does not tell images apart.
                        **metadata_texts(entry for entry in inference.metadata if entry.value != REDACTED),
                    },
                )

    found = samples()
    first = next(found, None)
    if first is None:
        raise DriftError("There are no recordings of answered image requests")
    (task_type,) = tasks
    observations = list(_with_progress(measure_images(chain([first], found), task_type, embedder), bar))
    if len(tasks) > 1:
        names = ", ".join(sorted(models))
        raise DriftError(f"The recordings are of several tasks, {', '.join(sorted(tasks))}: choose a model ({names})")
    sample = build_sample(observations, task_type, source)
    return MeasuredImages(sample, lambda inference_id: reader.image(inferences[inference_id]), skipped)


def _decoded(data: bytes) -> Image:
    """Decode an image within the server's default limits."""
    check_size(*image_size(data), Limits().max_pixels)
    return decode_image(data)


def _with_progress(observations: Iterator[Observation], bar: Bar, total: int | None = None) -> Iterator[Observation]:
    for count, observation in enumerate(observations, 1):
        bar.show(count, total)
        yield observation
