"""Encode images for tests."""

import base64
import io
from typing import Any

import cv2
import numpy as np
import PIL.Image
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


def rectangle(
    width: int = 64,
    height: int = 48,
    box: tuple[int, int, int, int] = (10, 8, 30, 40),
    colour: tuple[int, int, int] = (255, 0, 0),
) -> Pixels:
    """Return a dark (height, width, 3) RGB image with one bright rectangle: left, top, right, bottom (exclusive)."""
    pixels = np.zeros((height, width, 3), np.uint8)
    left, top, right, bottom = box
    pixels[top:bottom, left:right] = colour
    return pixels


def rotated_rectangle(
    width: int, height: int, centre: tuple[float, float], size: tuple[float, float], radians: float
) -> Pixels:
    """Return a dark image with one bright rectangle, rotated clockwise with y downward."""
    pixels = np.zeros((height, width, 3), np.uint8)
    along = np.array([np.cos(radians), np.sin(radians)]) * size[0] / 2
    across = np.array([-np.sin(radians), np.cos(radians)]) * size[1] / 2
    corners = np.add(centre, [-along - across, along - across, along + across, -along + across])
    cv2.fillPoly(pixels, [np.rint(corners).astype(np.int32)], (0, 255, 0))
    return pixels


def encode_image(pixels: NDArray[Any], file_format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, file_format, **options)
    return buffer.getvalue()


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
