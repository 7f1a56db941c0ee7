"""Compare the fast resize with Pillow's own, for filters, directions, windows and threads."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow

from app.core.runtimes.onnxruntime.images.preprocessing import PILLOW_FILTERS, Interpolation
from app.core.runtimes.onnxruntime.images.resampling import Box, resample
from tests.core.runtimes.onnxruntime.images.test_resampling import photo
from tests.support.data.rounding import assert_equal_but_for_rounding

pytest.importorskip("cykooz_resizer")

FILTERS: Sequence[Interpolation] = ("nearest", "bilinear", "bicubic", "lanczos", "area")
SIZES = [
    ((480, 640), (224, 224)), ((640, 480), (298, 224)), ((1200, 300), (96, 96)), ((700, 400), (420, 390)),
    ((300, 1200), (96, 96)), ((61, 47), (224, 192)), ((1, 5), (8, 8)), ((500, 500), (700, 64)),
]  # fmt: skip
"""(height, width) of images, and of the results."""


def by_pillow(
    pixels: NDArray[Any], size: tuple[int, int], interpolation: Interpolation, box: Box | None = None
) -> NDArray[Any]:
    resample = Pillow.Resampling(PILLOW_FILTERS[interpolation])
    return np.asarray(Pillow.fromarray(pixels).resize((size[1], size[0]), resample, box))


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize(("image_size", "size"), SIZES)
@pytest.mark.parametrize("part", [None, (0.1, 0.23, 0.77, 0.9)])
def test_resized_bytes_are_those_of_pillow(
    image_size: tuple[int, int], size: tuple[int, int], interpolation: Interpolation, part: Box | None
) -> None:
    pixels, (height, width) = photo(*image_size), image_size
    box = part and (part[0] * width, part[1] * height, part[2] * width, part[3] * height)
    found, expected = resample(pixels, size, interpolation, box), by_pillow(pixels, size, interpolation, box)
    assert_equal_but_for_rounding(found, expected)
    if interpolation in ("nearest", "area"):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("box", [None, (3.3, 7.1, 301.7, 203.2)])
def test_resized_floats_are_those_of_pillow(interpolation: Interpolation, box: Box | None) -> None:
    grey = photo(240, 320)[:, :, 1].astype(np.float32) + np.float32(0.25)
    expected = by_pillow(grey, (48, 64), interpolation, box)
    resized = resample(grey, (48, 64), interpolation, box)
    assert resized.dtype == np.float32
    np.testing.assert_allclose(resized, expected, atol=1e-4)


def test_image_of_the_wanted_size_is_not_copied() -> None:
    pixels = photo(32, 48)
    assert resample(pixels, (32, 48), "bicubic") is pixels


def test_view_of_a_larger_image_is_resized() -> None:
    view = photo(300, 400)[20:270:2, ::-1]
    assert_equal_but_for_rounding(
        resample(view, (64, 64), "bilinear"), by_pillow(np.ascontiguousarray(view), (64, 64), "bilinear")
    )


def test_threads_resize_different_images_at_once() -> None:
    images = [photo(200 + 7 * number, 300 + 11 * number) for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(resample, image, (56, 56), "bicubic") for image in images]
    for future, image in zip(found, images, strict=True):
        np.testing.assert_array_equal(future.result(), resample(image, (56, 56), "bicubic"))


def test_pillow_resizes_where_the_package_is_not_installed(tmp_path: Path) -> None:
    pixels = photo(480, 640)
    np.save(tmp_path / "in.npy", pixels)
    code = f"""
import sys
sys.modules["cykooz_resizer"] = None
import numpy as np
from app.core.runtimes.onnxruntime.images.resampling import resample
np.save({str(tmp_path / "out.npy")!r}, resample(np.load({str(tmp_path / "in.npy")!r}), (224, 224), "lanczos"))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[5])
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), by_pillow(pixels, (224, 224), "lanczos"))
