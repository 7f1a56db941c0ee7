"""Pictures to the tensors that a model takes, as the model's own processor makes them.

Where a table look-up gives the same numbers, it takes the processor's place: that is tried, on noise of several sizes,
each time a model is loaded.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from app.runtimes.transformers.framework import first_line, framework
from app.settings.model import ModelError, ModelSource
from tasks.vision.image import Image

__all__ = ("TOLERANCE", "Batch", "ImagePreparation", "load_image_processor", "table_preparation")

TOLERANCE = 1e-5
"""The most that a normalised pixel may differ from the processor's."""

_PROBES = ((64, 48), (301, 200), (97, 333), (1, 5), (32, 32))
"""Widths and heights of the pictures that both ways are tried on."""

Tensors = Mapping[str, Any]


class Batch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Pictures that one call of the model answers.

    Attributes:
        indices: their places among all that were asked about.
        sizes: (height, width) of each.
        tensors: the model's inputs.
    """

    indices: Sequence[int]
    sizes: Sequence[tuple[int, int]]
    tensors: Tensors


class ImagePreparation:
    """Makes model inputs of pictures. Called from several threads at once.

    Pictures are prepared one by one, and those whose tensors are of one shape go through the model together. None is
    padded for the sake of another: what a picture is answered never depends on those beside it.

    Args:
        processor: transformers' image processor.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._turn = threading.Lock()
        fast = table_preparation(processor)
        self._fast = fast if fast is not None and self._agrees(fast) else None

    @property
    def by_table(self) -> bool:
        """Whether the processor's place is taken."""
        return self._fast is not None

    def batches(self, images: Sequence[Image]) -> Iterator[Batch]:
        """The inputs of `images`, in batches of one shape."""
        groups: dict[tuple[Any, ...], list[tuple[int, Tensors]]] = {}
        for index, image in enumerate(images):
            made = self.one(image)
            key = tuple((name, tuple(np.shape(value))) for name, value in sorted(made.items()))
            groups.setdefault(key, []).append((index, made))
        for members in groups.values():
            indices = [index for index, _ in members]
            names = members[0][1].keys()
            yield Batch(
                indices=indices,
                sizes=[(images[index].height, images[index].width) for index in indices],
                tensors={name: framework().torch.cat([made[name] for _, made in members]) for name in names},
            )

    def one(self, image: Image) -> Tensors:
        """The inputs of one picture, a batch of one."""
        if self._fast is not None:
            return {"pixel_values": framework().torch.from_numpy(self._fast(image.pixels))}
        return self._processed(image.pixels)

    def _processed(self, pixels: NDArray[np.uint8]) -> Tensors:
        with self._turn:
            made: Any = self._processor(images=PIL.Image.fromarray(pixels), return_tensors="pt")
        return {name: value for name, value in made.items() if framework().torch.is_tensor(value)}

    def _agrees(self, fast: Callable[[NDArray[np.uint8]], NDArray[np.float32]]) -> bool:
        random = np.random.default_rng(0)
        for width, height in _PROBES:
            noise = random.integers(0, 256, (height, width, 3), np.uint8)
            try:
                expected = self._processed(noise)
            except Exception:  # noqa: BLE001 - whatever it is, the processor is to raise it when it is asked
                return False
            if list(expected) != ["pixel_values"]:
                return False
            wanted, found = expected["pixel_values"].numpy(), fast(noise)
            if wanted.shape != found.shape or np.abs(wanted - found).max() > TOLERANCE:
                return False
        return True


def load_image_processor(source: ModelSource) -> Any:
    """The image processor of a model, by NumPy and Pillow.

    Raises:
        ModelError: when it cannot be made of the files.
    """
    try:
        return framework().transformers.AutoImageProcessor.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False, backend="pil"
        )
    except Exception as error:
        raise ModelError(f"{source.folder} has no image processor that can be used: {first_line(error)}") from error


def table_preparation(processor: Any) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]] | None:
    """The processor's work with Pillow and a look-up table; None for one that may do more than resize and normalise.

    What it returns takes (height, width, 3) pixels and gives (1, 3, height, width).
    """
    told = {name: getattr(processor, name, None) for name in (*_STEPS, *_NUMBERS)}
    size, crop = _plain(told["size"]), _plain(told["crop_size"]) if told["do_center_crop"] else None
    if told["do_pad"] or told["do_flip_channel_order"]:
        return None
    if told["do_resize"] and ("height" not in size or "width" not in size):
        return None
    if told["do_center_crop"] and (crop is None or "height" not in crop):
        return None
    scale = float(told["rescale_factor"] or 1) if told["do_rescale"] else 1.0
    pixels = np.arange(256, dtype=np.float64) * scale
    mean, std = (told["image_mean"], told["image_std"]) if told["do_normalize"] else ((0.0,) * 3, (1.0,) * 3)
    if mean is None or std is None or not len(mean) == len(std) == 3:
        return None
    tables = [((pixels - m) / s).astype(np.float32) for m, s in zip(mean, std, strict=True)]

    def prepare(image: NDArray[np.uint8]) -> NDArray[np.float32]:
        shown = image
        if told["do_resize"] and shown.shape[:2] != (size["height"], size["width"]):
            wanted = (size["width"], size["height"])
            shown = np.asarray(PIL.Image.fromarray(shown).resize(wanted, resample=told["resample"]))
        if crop is not None:
            top, left = (shown.shape[0] - crop["height"]) // 2, (shown.shape[1] - crop["width"]) // 2
            shown = shown[top : top + crop["height"], left : left + crop["width"]]
        planes = np.empty((1, 3, *shown.shape[:2]), np.float32)
        for channel, table in enumerate(tables):
            planes[0, channel] = cv2.LUT(np.ascontiguousarray(shown[:, :, channel]), table)
        return planes

    return prepare


_STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_pad", "do_flip_channel_order")
_NUMBERS = ("size", "crop_size", "resample", "rescale_factor", "image_mean", "image_std")


def _plain(size: Any) -> dict[str, int]:
    return {name: int(value) for name, value in dict(size or {}).items() if value is not None}
