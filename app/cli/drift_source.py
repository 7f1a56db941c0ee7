"""The images that drift is measured of: a folder, or what --record recorded."""

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
    """Which of the recordings.

    Attributes:
        since: not older than this, as `app.recording.query.QueryText` has it.
        until: older than this.
        model: the model's name.
        where: conditions on metadata.
        images: the folder of recorded images.
    """

    since: str | None = None
    until: str | None = None
    model: str | None = None
    where: Sequence[str] = ()
    images: Path | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A sample, and how its images are found again.

    Attributes:
        sample: what was measured.
        picture: an image's file by its id, None where it is gone.
        skipped: why images were passed over, and how many.
    """

    sample: Sample
    picture: Callable[[str], bytes | None]
    skipped: Mapping[str, int]


def measured(
    source: str, part: RecordedPart, model: ModelSource | None, embedder: Embedder | None, most: int,
    told: Callable[[int], None],
) -> Measured:  # fmt: skip
    """Measure a folder, or recordings.

    Args:
        source: a folder, or what --record was given.
        part: which of the recordings.
        model: looks at the images of a folder, if one is to; recordings have their answers.
        embedder: makes embeddings, if they are wanted.
        most: of more images, so many are taken: of a folder at random, of recordings the newest.
        told: how many are done.

    Raises:
        DriftError: when there are too few images, or they are of several tasks.
        InferenceError: when recordings cannot be read, or the model fails.
        SettingsError: when the address of the recordings cannot be read.
    """
    skipped: dict[str, int] = {}
    if Path(source).is_dir():
        task_type, answer = _answering(model)
        folder = _Folder(Path(source), most, answer, skipped)
        observations = _told(observed(folder.seen(), task_type, embedder), told)
        return Measured(
            sample=sample_of(observations, task_type, source), picture=folder.picture, skipped=skipped
        )  # fmt: skip
    if "://" not in source and not Path(source).exists():
        raise DriftError(f"There is no folder or file {source}")
    return _recorded(source, part, embedder, most, told, skipped)


class _Folder:
    """Image files, anywhere in it; metadata is the path of the folder that each is in."""

    def __init__(self, folder: Path, most: int, answer: Answer | None, skipped: dict[str, int]) -> None:
        self._folder, self._answer, self._skipped = folder, answer, skipped
        found = sorted(each for each in folder.rglob("*") if each.suffix.lower() in _SUFFIXES and each.is_file())
        if not found:
            raise DriftError(f"There are no images in {folder}")
        if len(found) > most:
            chosen: list[int] = np.sort(np.random.default_rng(_SEED).choice(len(found), most, replace=False)).tolist()
            self._skipped["left out, because there are more than --limit"] = len(found) - most
            found = [found[row] for row in chosen]
        self._files = found

    def seen(self) -> Iterator[Seen]:
        """Every image that can be read."""
        for file in self._files:
            try:
                data = file.read_bytes()
                image = _decoded(data)
                records = self._answer(data) if self._answer else None
            except (InferenceError, OSError):
                _count(self._skipped, "not readable as images")
                continue
            inside = file.relative_to(self._folder)
            place = str(inside.parent)
            yield Seen(id=str(inside), image=image, records=records, metadata={} if place == "." else {"folder": place})

    def picture(self, name: str) -> bytes | None:
        """The file of that id."""
        file = self._folder / name
        return file.read_bytes() if file.is_file() else None


def _recorded(
    source: str, part: RecordedPart, embedder: Embedder | None, most: int, told: Callable[[int], None],
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

        def seen() -> Iterator[Seen]:
            for batch in reader.batches(read_query(text), most):
                for each in batch:
                    if each.image is None or each.explanation:
                        _count(skipped, "of no image, or explanations")
                        continue
                    tasks.add(each.task_type)
                    models.add(each.model)
                    found[each.id] = each
                    yield Seen(
                        id=each.id,
                        image=_opened(reader.picture(each), skipped),
                        records=each.records,
                        metadata={"model": each.model, **{str(one.key): str(one.value) for one in each.metadata}},
                    )

        observations = list(_told(_observed_recordings(seen(), tasks, embedder), told))
        if len(tasks) > 1:
            names = ", ".join(sorted(models))
            raise DriftError(
                f"The recordings are of several tasks, {', '.join(sorted(tasks))}: choose a model ({names})"
            )
        sample = sample_of(observations, next(iter(tasks), ""), source)

    def picture(name: str) -> bytes | None:
        with closing(Reader(read_address(source), part.images)) as again:
            return again.picture(found[name])

    return Measured(sample=sample, picture=picture, skipped=skipped)


def _observed_recordings(seen: Iterator[Seen], tasks: set[str], embedder: Embedder | None) -> Iterator[Observation]:
    first = next(seen, None)
    if first is None:
        raise DriftError("There are no recordings of images that were answered")
    (task_type,) = tasks

    def all_of_them() -> Iterator[Seen]:
        yield first
        yield from seen

    yield from observed(all_of_them(), task_type, embedder)


def _answering(model: ModelSource | None) -> tuple[str, Answer | None]:
    if model is None:
        return "", None
    from app.assembly.models import load
    from app.protocols.bytes_elements import BinaryElement

    servable = load(model)

    def answer(data: bytes) -> Sequence[Mapping[str, object]]:
        tensor = BytesTensor(name="image", shape=(1,), elements=[BinaryElement(data)])
        request = InferenceRequest(id="drift", model_name=model.name, inputs=(tensor,))
        records = servable.answer(request, Limits()).outputs[0].predictions[0].records()
        return [msgspec.structs.asdict(each) for each in records]

    return servable.description.task_type, answer


def _decoded(data: bytes) -> Image:
    """An image within the server's limits."""
    check_size(*image_size(data), Limits().max_pixels)
    return decode_image(data)


def _opened(data: bytes | None, skipped: dict[str, int]) -> Image | None:
    if data is None:
        _count(skipped, "without their pixels")
        return None
    try:
        return _decoded(data)
    except InferenceError:
        _count(skipped, "without their pixels")
        return None


def _told(observations: Iterator[Observation], told: Callable[[int], None]) -> Iterator[Observation]:
    for count, each in enumerate(observations, 1):
        told(count)
        yield each


def _count(skipped: dict[str, int], why: str) -> None:
    skipped[why] = skipped.get(why, 0) + 1
