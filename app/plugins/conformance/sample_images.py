"""Draw test images, decode the user's, and convert both."""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from app.samples import sample_image

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class SampleImage:
    """An encoded image, and its size in pixels after EXIF orientation is applied."""

    name: str
    data: bytes
    width: int
    height: int

    def pixels(self) -> Pixels:
        """Return (height, width, 3) BGR pixels with EXIF orientation applied."""
        return _decode(self.name, self.data)

    def doubled(self) -> "SampleImage":
        """Return the image at twice its width and height."""
        large = cv2.resize(self.pixels(), (self.width * 2, self.height * 2), interpolation=cv2.INTER_NEAREST)
        return _encode(f"{self.name} at twice its size", large)

    def rotated(self, *, with_exif: bool) -> "SampleImage":
        """Return a JPEG with pixels rotated 90 degrees left; an EXIF orientation rotates them back if wanted."""
        rotated_image = _encode(f"{self.name}, turned left", np.rot90(self.pixels()), ".jpg")
        if not with_exif:
            return rotated_image
        data = _with_exif(rotated_image.data)
        return SampleImage(f"{self.name}, turned left with EXIF 6", data, self.width, self.height)

    def moved(self, left: int, top: int) -> "SampleImage":
        """Return the image with black pixels added on the left and on the top."""
        pixels = cv2.copyMakeBorder(self.pixels(), top, 0, left, 0, cv2.BORDER_CONSTANT)
        return _encode(f"{self.name} with pixels added", pixels)

    def as_jpeg(self) -> "SampleImage":
        """Return the image as a JPEG without EXIF."""
        return _encode(f"{self.name} as JPEG", self.pixels(), ".jpg")

    def as_grey(self) -> "SampleImage":
        """Return the image as a PNG with one channel."""
        return _encode(f"{self.name} in grey", cv2.cvtColor(self.pixels(), cv2.COLOR_BGR2GRAY))

    def with_alpha(self) -> "SampleImage":
        """Return the image as a PNG with an opaque alpha channel."""
        return _encode(f"{self.name} with alpha", cv2.cvtColor(self.pixels(), cv2.COLOR_BGR2BGRA))

    def as_sixteen_bit(self) -> "SampleImage":
        """Return the image as a PNG with 16 bits per channel."""
        return _encode(f"{self.name} in 16 bits", self.pixels().astype(np.uint16) * 257)


def load_image(name: str, data: bytes) -> SampleImage:
    """Return an encoded image of the user as a `SampleImage`. Raise ValueError if `data` cannot be decoded."""
    height, width = _decode(name, data).shape[:2]
    return SampleImage(name, data, width, height)


def rotated_bar(degrees: float) -> SampleImage:
    """Draw a bright bar on black, its long side rotated clockwise from the x axis, with y downward."""
    pixels = np.zeros((320, 400, 3), np.uint8)
    corners = cv2.boxPoints(((200.0, 160.0), (200.0, 60.0), degrees))
    cv2.fillPoly(pixels, [np.rint(corners).astype(np.int32)], (40, 220, 60))
    return _encode(f"a bar at {degrees:g} degrees", pixels)


def _decode(name: str, data: bytes) -> Pixels:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    if pixels is None:
        raise ValueError(f"{name}: Expected an encoded image")
    return np.asarray(pixels, np.uint8)


def _encode(name: str, pixels: NDArray[Any], extension: str = ".png") -> SampleImage:
    height, width = pixels.shape[:2]
    return SampleImage(name, cv2.imencode(extension, pixels)[1].tobytes(), width, height)


def _with_exif(jpeg: bytes) -> bytes:
    """Return `jpeg` with an EXIF segment that holds only Orientation 6."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    segment = exif.tobytes()
    return jpeg[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[2:]


def _rectangle() -> SampleImage:
    pixels = np.zeros((240, 320, 3), np.uint8)
    cv2.rectangle(pixels, (30, 60), (189, 179), (220, 90, 40), cv2.FILLED)
    return _encode("a rectangle", pixels)


SAMPLE_IMAGES = (load_image("a square and a circle", sample_image()), _rectangle(), rotated_bar(30), rotated_bar(75))
"""Images that every run sends, besides the user's."""
BLANK_IMAGE = _encode("plain grey", np.full((200, 300, 3), 118, np.uint8))
"""An image without objects."""
