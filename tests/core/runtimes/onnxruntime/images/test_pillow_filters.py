"""Compare the fast resize with Pillow's own, for filters, directions, windows and threads."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow

from app.core.runtimes.onnxruntime.images import resampling
from app.core.runtimes.onnxruntime.images.preprocessing import PILLOW_FILTERS, Interpolation
from app.core.runtimes.onnxruntime.images.resampling import Window, resample
from tests.core.runtimes.onnxruntime.images.test_resampling import photo
from tests.support.data.rounding import assert_equal_but_for_rounding

pytest.importorskip("cykooz_resizer")

FILTERS: Sequence[Interpolation] = ("nearest", "bilinear", "bicubic", "lanczos", "area")
SIZES = [
    ((480, 640), (224, 224)), ((640, 480), (298, 224)), ((1200, 300), (96, 96)), ((700, 400), (420, 390)),
    ((300, 1200), (96, 96)), ((61, 47), (224, 192)), ((1, 5), (8, 8)), ((500, 500), (700, 64)),
    ((300, 200), (384, 256)), ((1280, 720), (455, 256)), ((480, 640), (256, 341)), ((640, 480), (512, 360)),
]  # fmt: skip
"""(height, width) of images, and of the results."""
BY_PILLOW = [("installed", "nearest"), ("installed", "area"), *(("missing", name) for name in FILTERS)]
"""Packages and filters with which Pillow itself resizes, whatever the sizes."""


def by_pillow(
    pixels: NDArray[Any], size: tuple[int, int], interpolation: Interpolation, window: Window | None = None
) -> NDArray[Any]:
    """Resize all pixels, then crop, as torchvision and transformers do."""
    method = Pillow.Resampling(PILLOW_FILTERS[interpolation])
    return np.asarray(
        Pillow.fromarray(pixels).resize((size[1], size[0]), method).crop(window or (0, 0, size[1], size[0]))
    )


def middle(height: int, width: int) -> Window:
    return width // 8, height // 16, width - width // 8, height - height // 16


@pytest.mark.parametrize(
    ("package", "interpolation", "sizes"),
    [
        *(("installed", name, sizes) for name in ("bilinear", "bicubic", "lanczos") for sizes in SIZES),
        *((*case, sizes) for case in BY_PILLOW for sizes in (SIZES[0], SIZES[6])),
    ],
)
@pytest.mark.parametrize("part", [None, middle], ids=["whole", "middle"])
def test_resized_bytes_are_those_of_pillow(
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    interpolation: Interpolation,
    sizes: tuple[tuple[int, int], tuple[int, int]],
    part: Callable[[int, int], Window] | None,
) -> None:
    image_size, size = sizes
    if package == "missing":
        monkeypatch.setitem(sys.modules, "cykooz_resizer", None)
        monkeypatch.setattr(resampling, "_package", vars(resampling)["_package"].__wrapped__)
    pixels, window = photo(*image_size), part and part(*size)
    found, expected = resample(pixels, size, interpolation, window), by_pillow(pixels, size, interpolation, window)
    assert_equal_but_for_rounding(found, expected)
    if interpolation in ("nearest", "area") or (package == "missing" and not window):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("window", [None, (3, 7, 60, 40)])
def test_resized_floats_are_those_of_pillow(interpolation: Interpolation, window: Window | None) -> None:
    grey = photo(240, 320)[:, :, 1].astype(np.float32) + np.float32(0.25)
    expected = by_pillow(grey, (48, 64), interpolation, window)
    resized = resample(grey, (48, 64), interpolation, window)
    assert resized.dtype == np.float32
    np.testing.assert_allclose(resized, expected, atol=1e-4)


def test_image_of_the_wanted_size_is_not_copied() -> None:
    pixels = photo(32, 48)
    assert resample(pixels, (32, 48), "bicubic") is pixels


def test_view_of_a_larger_image_is_resized() -> None:
    view = photo(300, 400)[20:270:2, ::-1]
    expected = by_pillow(np.ascontiguousarray(view), (64, 64), "bilinear")
    assert_equal_but_for_rounding(resample(view, (64, 64), "bilinear"), expected)


def test_threads_resize_different_images_at_once() -> None:
    images = [photo(200 + 7 * number, 300 + 11 * number) for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(resample, image, (56, 56), "bicubic") for image in images]
    for future, image in zip(found, images, strict=True):
        np.testing.assert_array_equal(future.result(), resample(image, (56, 56), "bicubic"))
