"""Choose images for annotators that differ from one another: ``charioteer inferences --pick 100 diverse``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from app.core.cli.terminal import counted, error_console, progress
from app.core.plugins import registry
from app.core.settings.command_options import command_options
from app.core.settings.server import SettingsError
from app.plugins.feedback.settings import PickOptions
from app.plugins.recording.export.writing import best_prediction
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.query.reader import RecordingReader
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.vision.header import image_size
from tasks.vision.image import Image, check_size, decode_image

_BATCH = 16

Pick = Callable[[RecordingReader, Iterable[Sequence[RecordedInference]]], Sequence[RecordedInference]]
Embed = Callable[[Sequence[Image]], NDArray[np.float32]]


def picker() -> Pick | None:
    """Return the picker that the options of the command ask for; None without one.

    Raise SettingsError when no plugin computes embeddings.
    """
    pick = command_options(PickOptions).pick
    if pick is None:
        return None
    embedders = registry().extensions("feedback.embedder")
    if not embedders:
        raise SettingsError("--pick diverse needs the embeddings of the plugin drift, which is not loaded")
    count, embed = pick[0], embedders[0]()
    return lambda reader, batches: pick_diverse(count, embed, reader, batches)


def pick_diverse(
    count: int, embed: Embed, reader: RecordingReader, batches: Iterable[Sequence[RecordedInference]]
) -> Sequence[RecordedInference]:
    """Return at most `count` inferences whose stored images cover all others as well as possible, the best first.

    Of several inferences of one image, the newest counts.
    """
    found: dict[str, RecordedInference] = {}
    for inference in chain.from_iterable(batches):
        if inference.image is not None:
            found.setdefault(inference.image.digest, inference)
    readable: list[RecordedInference] = []
    rows: list[NDArray[np.float32]] = []
    images = _images(reader, found.values())
    with progress("Comparing images", len(found)) as bar:
        while batch := list(islice(images, _BATCH)):
            rows.append(embed([image for _, image in batch]))
            readable += [inference for inference, _ in batch]
            bar.advance(len(batch))
    if len(readable) < len(found):
        missing = counted(len(found) - len(readable), "image")
        error_console().print(f"{missing} left out: not stored, or not readable; --images names the folder")
    if not readable:
        return []
    scores = np.array([best_prediction(inference.records)[1] or 0.0 for inference in readable])
    return [readable[index] for index in cover(np.concatenate(rows), scores, count)]


def cover(rows: NDArray[np.float32], scores: NDArray[np.float64], count: int) -> Sequence[int]:
    """Return at most `count` indexes of the (n, d) rows: each next row is the farthest from those before.

    This is the greedy solution of the k-centre problem (Gonzalez 1985): no row is more than twice as far from a chosen
    one as in the best solution. It begins with the lowest of the (n,) scores. They also decide between equal distances.
    """
    spread = rows.std(axis=0)
    points: NDArray[np.float64] = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1)
    chosen = [int(np.argmin(scores))]
    distances = _distances(points, chosen[0])
    while len(chosen) < min(count, len(rows)):
        distances[chosen[-1]] = -1
        farthest = np.flatnonzero(distances == distances.max())
        chosen.append(int(farthest[np.argmin(scores[farthest])]))
        distances = np.where(distances < 0, distances, np.minimum(distances, _distances(points, chosen[-1])))
    return chosen


def _distances(points: NDArray[np.float64], index: int) -> NDArray[np.float64]:
    """Return the distances of all points from one."""
    return np.sqrt(np.square(points - points[index]).sum(axis=1))


def _images(
    reader: RecordingReader, inferences: Iterable[RecordedInference]
) -> Iterator[tuple[RecordedInference, Image]]:
    """Yield the inferences whose images are stored and within the server's default limits, with their images."""
    for inference in inferences:
        data = reader.image(inference)
        if data is not None:
            try:
                check_size(*image_size(data), Limits().max_pixels)
                image = decode_image(data)
            except InferenceError:
                continue
            yield inference, image


PICKERS = (picker,)
