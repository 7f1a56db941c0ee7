"""Read the images for drift measurement: from a folder, or from recordings."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from app.cli.model.inputs import predict_records
from app.drift.measurement import DriftInput, Embedder, measure_images, metadata_texts
from app.drift.sample import DriftError, Observation, Sample, build_sample
from app.settings.inference_query import NO_ERROR, InferenceQuery
from app.settings.model import ModelSource
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.vision.header import image_size
from tasks.vision.image import Image, check_size, decode_image

if TYPE_CHECKING:
    from app.cli.recorded.drift import ImageOptions

_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_SEED = 0

ProgressCallback = Callable[[int, int | None], None]
PredictRecords = Callable[[bytes], Sequence[Mapping[str, object]]]


class MeasuredImages(msgspec.Struct, frozen=True, kw_only=True, eq=False):
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
    on_progress: ProgressCallback,
) -> MeasuredImages:
    """Measure the images of a folder, or of recordings.

    Args:
        source: a folder, or a recording store (the value of --record).
        options: which images to read.
        model: runs on the images of a folder, if given; recordings already hold predictions.
        embedder: computes embeddings, if given.
        on_progress: called with the number of images done, and of all images if it is known.

    Raises:
        DriftError: when there are too few images, or their task types differ.
        InferenceError: when recordings cannot be read, or the model fails.
        SettingsError: when the address of the recordings is invalid.
    """
    skipped: Counter[str] = Counter()
    if Path(source).is_dir():
        task_type, predict = _load_predictor(model)
        folder = _Folder(Path(source), options.limit, predict, skipped)
        observations = _with_progress(measure_images(folder.samples(), task_type, embedder), on_progress, len(folder))
        return MeasuredImages(
            sample=build_sample(observations, task_type, source), image_bytes=folder.image_bytes, skipped=skipped
        )  # fmt: skip
    if "://" not in source and not Path(source).exists():
        raise DriftError(f"There is no folder or file {source}")
    return _measure_recordings(source, options, embedder, on_progress, skipped)


class _Folder:
    """The image files below a folder; their metadata is the path of their folder."""

    def __init__(self, folder: Path, max_images: int, predict: PredictRecords | None, skipped: Counter[str]) -> None:
        self._folder, self._predict, self._skipped = folder, predict, skipped
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
        if not files:
            raise DriftError(f"There are no images in {folder}")
        if len(files) > max_images:
            rows: list[int] = np.sort(
                np.random.default_rng(_SEED).choice(len(files), max_images, replace=False)
            ).tolist()
            self._skipped["left out, because there are more than --limit"] = len(files) - max_images
            files = [files[row] for row in rows]
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def samples(self) -> Iterator[DriftInput]:
        """Yield every readable image."""
        for file in self._files:
            try:
                data = file.read_bytes()
                image = _decoded(data)
                records = self._predict(data) if self._predict else None
            except (InferenceError, OSError):
                self._skipped["not readable as images"] += 1
                continue
            relative_path = file.relative_to(self._folder)
            folder = str(relative_path.parent)
            yield DriftInput(
                id=str(relative_path),
                image=image,
                records=records,
                metadata={} if folder == "." else {"folder": folder},
            )

    def image_bytes(self, name: str) -> bytes | None:
        """Return the content of the file with that id."""
        file = self._folder / name
        return file.read_bytes() if file.is_file() else None


def _measure_recordings(
    source: str,
    options: "ImageOptions",
    embedder: Embedder | None,
    on_progress: ProgressCallback,
    skipped: Counter[str],
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
                    image=_decoded_or_skipped(reader.image(inference), skipped),
                    records=inference.records,
                    metadata={
                        "model": inference.model,
                        # A redacted value does not tell images apart.
                        **metadata_texts(entry for entry in inference.metadata if entry.value != REDACTED),
                    },
                )

    observations = list(_with_progress(_observed_recordings(samples(), tasks, embedder), on_progress))
    if len(tasks) > 1:
        names = ", ".join(sorted(models))
        raise DriftError(f"The recordings are of several tasks, {', '.join(sorted(tasks))}: choose a model ({names})")
    sample = build_sample(observations, next(iter(tasks), ""), source)

    def image_bytes(inference_id: str) -> bytes | None:
        return reader.image(inferences[inference_id])

    return MeasuredImages(sample=sample, image_bytes=image_bytes, skipped=skipped)


def _observed_recordings(
    samples: Iterator[DriftInput], tasks: set[str], embedder: Embedder | None
) -> Iterator[Observation]:
    first = next(samples, None)
    if first is None:
        raise DriftError("There are no recordings of answered image requests")
    (task_type,) = tasks
    yield from measure_images(chain([first], samples), task_type, embedder)


def _load_predictor(model: ModelSource | None) -> tuple[str, PredictRecords | None]:
    if model is None:
        return "", None
    from app.assembly.models import load

    servable = load(model)

    def predict(data: bytes) -> Sequence[Mapping[str, object]]:
        return [msgspec.structs.asdict(record) for record in predict_records(servable, model.name, data)]

    return servable.description.task_type, predict


def _decoded(data: bytes) -> Image:
    """Decode an image within the server's default limits."""
    check_size(*image_size(data), Limits().max_pixels)
    return decode_image(data)


def _decoded_or_skipped(data: bytes | None, skipped: Counter[str]) -> Image | None:
    if data is not None:
        with suppress(InferenceError):
            return _decoded(data)
    skipped["without their pixels"] += 1
    return None


def _with_progress(
    observations: Iterator[Observation], on_progress: ProgressCallback, total: int | None = None
) -> Iterator[Observation]:
    for count, observation in enumerate(observations, 1):
        on_progress(count, total)
        yield observation
