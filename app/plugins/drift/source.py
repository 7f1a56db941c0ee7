"""Read the images for drift measurement: from a folder, or from recordings."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app.core.cli.terminal import Bar, counted, progress
from app.core.settings.model import ModelSource
from app.inputs import predict_records
from app.plugins.drift.measurement import DriftInput, Embed, measure_images, metadata_texts
from app.plugins.drift.sample import DriftError, Sample, build_sample
from app.plugins.recording.inference_query import NO_ERROR, NO_TRIAL, InferenceQuery
from app.plugins.recording.sources import Source, SourceImage, open_images
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.vision.header import image_size
from tasks.vision.image import Image, check_size, decode_image

if TYPE_CHECKING:
    from app.plugins.drift.command import ImageOptions
    from app.plugins.recording.inference import RecordedInference
    from app.plugins.recording.query.reader import RecordingReader

_UNREADABLE = "not readable as images"


class MeasuredImages(msgspec.Struct, frozen=True, eq=False):
    """A sample, and where its images are.

    `image_bytes` returns the file of an image by its id, None if it no longer exists. `skipped` has counts by reason.
    """

    sample: Sample
    image_bytes: Callable[[str], bytes | None]
    skipped: Mapping[str, int]


def measure_source(
    source: str, options: "ImageOptions", model: ModelSource | None, embedder: Embed | None
) -> MeasuredImages:
    """Measure images of a folder, of a source that another plugin reads, or of recordings (the value of --record).

    A model runs on the images of a folder or source; recordings already hold predictions. Raise DriftError when there
    are too few images, or their task types differ. Raise InferenceError when recordings cannot be read, or the model
    fails. Raise SettingsError when the address of the recordings is invalid.
    """
    skipped = Counter[str]()
    with progress("Measuring images") as bar:
        try:
            if has_images(source):
                return _measure_files(source, options.limit, model, embedder, bar, skipped)
            if "://" not in source and not Path(source).exists():
                raise DriftError(f"There is no folder or file {source}")
            return _measure_recordings(source, options, embedder, bar, skipped)
        except DriftError as error:
            reasons = [f"{counted(count, 'image')} {reason}" for reason, count in skipped.items()]
            raise DriftError("; ".join([str(error), *reasons])) from None


def has_images(source: str) -> bool:
    """Return whether a source has images, and no recordings."""
    from app.plugins.recording.query.reader import is_folder_of_parts

    return (Path(source).is_dir() and not is_folder_of_parts(source)) or open_images(source) is not None


def _choose_images(source: str, max_images: int, skipped: Counter[str]) -> Sequence[SourceImage]:
    """Return the images of a source, or a random choice of them that is the same in every run."""
    total = 0

    def images() -> Iterator[SourceImage]:
        nonlocal total
        for total, image in enumerate(open_images(source) or Source(source), 1):  # noqa: B007
            yield image

    # Digests are in random order.
    chosen = nsmallest(max_images, images(), key=lambda image: image.digest)
    if not chosen:
        raise DriftError(f"There are no images in {source}")
    if total > len(chosen):
        skipped["left out, because there are more than --limit"] = total - len(chosen)
    return chosen


def _measure_files(
    source: str,
    max_images: int,
    model: ModelSource | None,
    embedder: Embed | None,
    bar: Bar,
    skipped: Counter[str],
) -> MeasuredImages:
    """Measure image files; their metadata is what the source says about them, or else the path of their folder."""
    from app.core.assembly.models import load

    files = _choose_images(source, max_images, skipped)
    servable = load(model) if model else None

    def samples() -> Iterator[DriftInput]:
        for file in files:
            bar.advance(total=len(files))
            if (data := _read(file)) is None:
                skipped[_UNREADABLE] += 1
            elif (image := _decode(data, skipped)) is not None:
                records = None
                try:
                    if servable and model:
                        predicted = predict_records(servable, model.name, data)
                        records = [msgspec.structs.asdict(record) for record in predicted]
                except InferenceError as error:
                    skipped[f"without an answer of the model: {error}"] += 1
                    continue
                folder = file.name.rpartition("/")[0]
                metadata = metadata_texts(file.metadata) or ({"folder": folder} if folder else {})
                yield DriftInput(id=file.name, image=image, records=records, metadata=metadata)

    by_name = {file.name: file for file in files}
    task_type = str(servable.description.task_type) if servable else ""
    sample = build_sample(measure_images(samples(), task_type, embedder), task_type, source)
    return MeasuredImages(sample, lambda name: _read(by_name[name]), skipped)


def _read(file: SourceImage) -> bytes | None:
    try:
        return file.read()
    except OSError:
        return None


def _measure_recordings(
    source: str, options: "ImageOptions", embedder: Embed | None, bar: Bar, skipped: Counter[str]
) -> MeasuredImages:
    """Measure the images of recorded requests; their metadata is the client's, and the model."""
    from app.plugins.recording.query.reader import open_recordings
    from app.plugins.recording.row_converter import REDACTED

    reader = open_recordings(source, options.images)
    inferences = _choose_inferences(reader, source, options, skipped)
    # Through a server, the task of an answer without objects is unknown.
    task_type, *others = sorted({inference.task_type for inference in inferences.values()} - {""}) or [""]
    if others:
        names = ", ".join(sorted({inference.model for inference in inferences.values()}))
        tasks = ", ".join([task_type, *others])
        raise DriftError(f"The recordings are of several tasks, {tasks}: choose one of {names} with --recorded-model")

    def image_of(inference: "RecordedInference") -> Image | None:
        if (data := reader.image(inference)) is not None:
            return _decode(data, skipped)
        skipped["without their pixels"] += 1
        return None

    # The others are no fair sample: answers without any object have nothing that is redacted.
    redacted = sum(
        any(record.get("label") == REDACTED or isinstance(record.get("score"), str) for record in item.records or ())
        for item in inferences.values()
    )
    if redacted:
        way_on = "so no answer is compared; choose others with --since or --until"
        skipped[f"with a redacted label or score, {way_on}"] = redacted

    def samples() -> Iterator[DriftInput]:
        for item in inferences.values():
            bar.advance(total=len(inferences))
            # A redacted value does not tell images apart.
            texts = metadata_texts(entry for entry in item.metadata if entry.value != REDACTED)
            records = None if redacted else item.records
            yield DriftInput(id=item.id, image=image_of(item), records=records, metadata={"model": item.model, **texts})

    sample = build_sample(measure_images(samples(), task_type, embedder), task_type, source)
    if len(sample) < len(inferences):
        skipped["left out, because others have pixels or answers to compare"] = len(inferences) - len(sample)
    return MeasuredImages(sample, lambda inference_id: reader.image(inferences[inference_id]), skipped)


def _choose_inferences(
    reader: "RecordingReader", source: str, options: "ImageOptions", skipped: Counter[str]
) -> Mapping[str, "RecordedInference"]:
    """Return answered requests of images by id, at most the number in the options. Raise DriftError without any."""
    from app.plugins.recording.query.reader import default_reason, is_folder_of_parts

    query = InferenceQuery(
        since=options.since,
        until=options.until,
        model=options.recorded_model,
        error=NO_ERROR,
        where=options.where or (),
        reason=options.reason or default_reason(source),
    )
    if is_folder_of_parts(source):
        # They have no natural order in time, but digests of names as ids, so that the smallest are a random choice.
        matches = chain.from_iterable(reader.batches(query))
        answered, choice = nsmallest(options.limit + 1, matches, key=lambda inference: inference.id), "a random choice"
    else:
        answered, choice = list(chain.from_iterable(reader.batches(query, options.limit + 1))), "the newest"
    if len(answered) > options.limit:
        answered.pop()
        skipped[f"taken, {choice}, because there are more than --limit"] = options.limit
    inferences = {item.id: item for item in answered if item.image is not None and not item.explanation}
    if len(inferences) < len(answered):
        skipped["of no image, or explanations"] = len(answered) - len(inferences)
    if not inferences:
        model = f" of the model {options.recorded_model!r}" if options.recorded_model else ""
        trials = "; --reason any includes trials, such as requests of the page" if query.reason == NO_TRIAL else ""
        raise DriftError(f"There are no recordings of answered image requests{model}{trials}")
    return inferences


def _decode(data: bytes, skipped: Counter[str]) -> Image | None:
    """Decode an image within the server's default limits; otherwise count it in `skipped`, and return None."""
    max_pixels = Limits().max_pixels
    try:
        check_size(*image_size(data), max_pixels)
        return decode_image(data)
    except InferenceError as error:
        is_large = error.kind is ErrorKind.TOO_LARGE
        skipped[f"left out, because of more than {max_pixels:,} pixels" if is_large else _UNREADABLE] += 1
        return None
