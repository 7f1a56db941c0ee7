"""Inputs whose size follows each picture, for graphs that take any size."""

import math

import msgspec

__all__ = ("Edges", "Elastic", "Line")


_THINNEST = 32
"""Pixels: networks divide their input so often, and have nothing left of a thin strip otherwise."""


class Edges(msgspec.Struct, frozen=True, kw_only=True):
    """The shorter side is brought to one length, unless the longer one would become too long. No side is below 32.

    What DETR's processors in transformers do, and, with `multiple`, PaddleOCR's text detection.

    Attributes:
        shortest: pixels.
        longest: pixels.
        multiple: both sides are rounded to a multiple of it, which may bend the aspect ratio a little.
    """

    shortest: int
    longest: int
    multiple: int = 1

    @property
    def told(self) -> str:
        """The rule in words."""
        rounded = f", to multiples of {self.multiple}" if self.multiple > 1 else ""
        return f"shorter side to {self.shortest}, longer to at most {self.longest}{rounded}"

    def frame(self, height: int, width: int) -> tuple[int, int]:
        """The (height, width) of the input for a picture of a size, pixels."""
        scale = min(self.shortest / min(height, width), self.longest / max(height, width))
        return self._rounded(height * scale), self._rounded(width * scale)

    def _rounded(self, side: float) -> int:
        return max(_THINNEST, round(side / self.multiple) * self.multiple)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The height is fixed, and the width follows the picture: PaddleOCR's text recognition.

    Attributes:
        height: pixels.
        narrowest: pixels; a narrower picture is padded.
        widest: pixels; a wider picture is made lower.
    """

    height: int
    narrowest: int
    widest: int

    @property
    def told(self) -> str:
        """The rule in words."""
        return f"height {self.height}, width that of the image, {self.narrowest} to {self.widest}"

    def frame(self, height: int, width: int) -> tuple[int, int]:
        """The (height, width) of the input for a picture of a size, pixels."""
        return self.height, min(max(math.ceil(self.height * width / height), self.narrowest), self.widest)


Elastic = Edges | Line
