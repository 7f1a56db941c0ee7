"""Test every value of the tensor that a graph receives."""

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.images.image_batch import ImageBatcher
from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def noise(height: int, width: int, seed: int = 0) -> Image:
    return Image(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def normalised(pixels: NDArray[np.uint8], mean: tuple[float, ...], std: tuple[float, ...]) -> NDArray[np.float64]:
    return ((pixels / 255 - np.array(mean)) / np.array(std)).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("datatype", "tolerance"), [(Datatype.FP32, 1e-6), (Datatype.FP16, 2e-3)], ids=["FP32", "FP16"]
)
@pytest.mark.parametrize("bgr", [False, True])
def test_normalisation_follows_formula(datatype: Datatype, tolerance: float, bgr: bool) -> None:
    options = Preprocessing(height=40, width=30, resize="stretch", shorter_side=30, mean=MEAN, std=STD, bgr=bgr)
    # The mirrored view is not contiguous.
    image = Image(noise(40, 30).pixels[:, ::-1])
    batch, _ = ImageBatcher(options, datatype).prepare([image], 1)
    assert batch.dtype == datatype.dtype
    assert np.abs(batch[0, :: -1 if bgr else 1] - normalised(image.pixels, MEAN, STD)).max() <= tolerance


def test_uint8_input_receives_unscaled_pixels() -> None:
    preprocessing = Preprocessing(height=8, width=8, resize="letterbox", shorter_side=8, scale=1, fill=7)
    image = noise(8, 4)
    batch, _ = ImageBatcher(preprocessing, Datatype.UINT8).prepare([image], 1)
    assert batch.dtype == np.uint8
    assert (batch[0, :, :, 2:6] == image.pixels.transpose(2, 0, 1)).all()
    assert (batch[0, :, :, [0, 1, 6, 7]] == 7).all()


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.FP16, Datatype.UINT8])
def test_channels_last_gives_same_values(datatype: Datatype) -> None:
    preprocessing = Preprocessing(height=10, width=12, resize="letterbox", shorter_side=10, bgr=True)
    images = [noise(8, 14), noise(30, 9, 1)]
    first, placements = ImageBatcher(preprocessing, datatype).prepare(images, 3)
    last, same = ImageBatcher(preprocessing, datatype, channels_last=True).prepare(images, 3)
    assert last.shape == (3, 10, 12, 3)
    assert (last == first.transpose(0, 2, 3, 1)).all()
    assert (last.flags.c_contiguous, same) == (True, placements)


def test_unused_batch_slots_are_zero() -> None:
    preprocessing = Preprocessing(height=8, width=8, resize="stretch", shorter_side=8)
    batch, placements = ImageBatcher(preprocessing, Datatype.FP32).prepare([noise(8, 8)], 3)
    assert batch.shape == (3, 3, 8, 8)
    assert len(placements) == 1
    assert batch[0].any()
    assert not batch[1:].any()
