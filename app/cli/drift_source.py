"""Read the images for drift measurement: from a folder, or from recordings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np

from app.drift.embedding import Embedder
from app.drift.measuring import Seen, observed
from app.drift.sample import DriftError, Observation, Sample, sample_of
from app.settings.model import ModelSource
from tasks.exchange.error import InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor
from tasks.vision.header import image_size
from tasks.vision.image import Image, check_size, decode_image

__all__ = ("Measured", "RecordedPart", "measured")

_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_SEED = 0

Answer = Callable[[bytes], Sequence[Mapping[str, object]]]


class RecordedPart(msgspec.Struct, frozen=True, kw_only=True):
    """Filters for recordings.

    Attributes:
        since: earliest time, in the syntax of `app.recording.query.QueryText`.
        until: time before which recordings must lie.
        model: the model's name.
        where: conditions on metadata.
        images: folder of recorded images.
    """

    since: str | None = None
    until: str | None = None
    model: str | None = None
    where: Sequence[str] = ()
    images: Path | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A sample, and access to its images.

    Attributes:
        sample: the measurements.
        image_bytes: returns an image file's bytes by image id, None if it no longer exists.
        skipped: number of skipped images by reason.
    """

    sample: Sample
    image_bytes: Callable[[str], bytes | None]
    skipped: Mapping[str, int]


def measured(
    source: str, part: RecordedPart, model: ModelSource | None, embedder: Embedder | None, max_images: int,
    on_progress: Callable[[int], None],
) -> Measured:  # fmt: skip
    """Measure the images of a folder, or of recordings.

    Args:
        source: a folder, or a recording store (the value of --record).
        part: which recordings to read.
        model: runs on the images of a folder, if given; recordings already hold predictions.
        embedder: computes embeddings, if given.
        max_images: maximum number of images: a random choice from a folder, the newest from recordings.
        on_progress: called with the number of images done.

    Raises:
        DriftError: when there are too few images, or their task types differ.
        InferenceError: when recordings cannot be read, or the model fails.
        SettingsError: when the address of the recordings is invalid.
    """
    skipped: dict[str, int] = {}
    if Path(source).is_dir():
        task_type, answer = _predictor(model)
        folder = _Folder(Path(source), max_images, answer, skipped)
        observations = _with_progress(observed(folder.seen(), task_type, embedder), on_progress)
        return Measured(
            sample=sample_of(observations, task_type, source), image_bytes=folder.image_bytes, skipped=skipped
        )  # fmt: skip
    if "://" not in source and not Path(source).exists():
        raise DriftError(f"There is no folder or file {source}")
    return _recorded(source, part, embedder, max_images, on_progress, skipped)


class _Folder:
    """The image files below a folder; their metadata is the path of their folder."""

    def __init__(self, folder: Path, max_images: int, answer: Answer | None, skipped: dict[str, int]) -> None:
        self._folder, self._answer, self._skipped = folder, answer, skipped
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
        if not found:
            raise DriftError(f"There are no images in {folder}")
        if len(found) > max_images:
            chosen: list[int] = np.sort(
                np.random.default_rng(_SEED).choice(len(found), max_images, replace=False)
            ).tolist()
            self._skipped["left out, because there are more than --limit"] = len(found) - max_images
            found = [found[row] for row in chosen]
        self._files = found

    def seen(self) -> Iterator[Seen]:
        """Yield every readable image."""
        for file in self._files:
            try:
                data = file.read_bytes()
                image = _decoded(data)
                records = self._answer(data) if self._answer else None
            except (InferenceError, OSError):
                _count_skipped(self._skipped, "not readable as images")
                continue
            relative_path = file.relative_to(self._folder)
            place = str(relative_path.parent)
            yield Seen(
                id=str(relative_path), image=image, records=records, metadata={} if place == "." else {"folder": place}
            )

    def image_bytes(self, name: str) -> bytes | None:
        """Return the content of the file with that id."""
        file = self._folder / name
        return file.read_bytes() if file.is_file() else None


def _recorded(
    source: str, part: RecordedPart, embedder: Embedder | None, max_images: int, on_progress: Callable[[int], None],
    skipped: dict[str, int],
) -> Measured:  # fmt: skip
    from app.recording.address import read_address
    from app.recording.inference import RecordedInference
    from app.recording.query import NO_ERROR, QueryText, read_query
    from app.recording.query_reader import Reader

    text = QueryText(since=part.since, until=part.until, model=part.model, error=NO_ERROR, where=part.where)
    with closing(Reader(read_address(source), part.images)) as reader:
        tasks: set[str] = set()
        models: set[str] = set()
        found: dict[str, RecordedInference] = {}

        def samples() -> Iterator[Seen]:
            for batch in reader.batches(read_query(text), max_images):
                for inference in batch:
                    if inference.image is None or inference.explanation:
                        _count_skipped(skipped, "of no image, or explanations")
                        continue
                    tasks.add(inference.task_type)
                    models.add(inference.model)
                    found[inference.id] = inference
                    yield Seen(
                        id=inference.id,
                        image=_decoded_or_skipped(reader.picture(inference), skipped),
                        records=inference.records,
                        metadata={
                            "model": inference.model,
                            **{str(entry.key): str(entry.value) for entry in inference.metadata},
                        },
                    )

        observations = list(_with_progress(_observed_recordings(samples(), tasks, embedder), on_progress))
        if len(tasks) > 1:
            names = ", ".join(sorted(models))
            raise DriftError(
                f"The recordings are of several tasks, {', '.join(sorted(tasks))}: choose a model ({names})"
            )
        sample = sample_of(observations, next(iter(tasks), ""), source)

    def image_bytes(inference_id: str) -> bytes | None:
        with closing(Reader(read_address(source), part.images)) as image_reader:
            return image_reader.picture(found[inference_id])

    return Measured(sample=sample, image_bytes=image_bytes, skipped=skipped)


def _observed_recordings(samples: Iterator[Seen], tasks: set[str], embedder: Embedder | None) -> Iterator[Observation]:
    first = next(samples, None)
    if first is None:
        raise DriftError("There are no recordings of answered image requests")
    (task_type,) = tasks

    def all_samples() -> Iterator[Seen]:
        yield first
        yield from samples

    yield from observed(all_samples(), task_type, embedder)


def _predictor(model: ModelSource | None) -> tuple[str, Answer | None]:
    if model is None:
        return "", None
    from app.assembly.models import load
    from app.protocols.bytes_elements import BinaryElement

    servable = load(model)

    def answer(data: bytes) -> Sequence[Mapping[str, object]]:
        tensor = BytesTensor(name="image", shape=(1,), elements=[BinaryElement(data)])
        request = InferenceRequest(id="drift", model_name=model.name, inputs=(tensor,))
        records = servable.answer(request, Limits()).outputs[0].predictions[0].records()
        return [msgspec.structs.asdict(record) for record in records]

    return servable.description.task_type, answer


def _decoded(data: bytes) -> Image:
    """Decode an image within the server's default limits."""
    check_size(*image_size(data), Limits().max_pixels)
    return decode_image(data)


def _decoded_or_skipped(data: bytes | None, skipped: dict[str, int]) -> Image | None:
    if data is None:
        _count_skipped(skipped, "without their pixels")
        return None
    try:
        return _decoded(data)
    except InferenceError:
        _count_skipped(skipped, "without their pixels")
        return None


def _with_progress(observations: Iterator[Observation], on_progress: Callable[[int], None]) -> Iterator[Observation]:
    for count, observation in enumerate(observations, 1):
        on_progress(count)
        yield observation


def _count_skipped(skipped: dict[str, int], reason: str) -> None:
    skipped[reason] = skipped.get(reason, 0) + 1
