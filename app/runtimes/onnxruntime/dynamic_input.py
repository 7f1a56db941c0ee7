"""Compute the input size from each image, for graphs that accept any size."""

import math

import msgspec

__all__ = ("DynamicSize", "EdgeLimits", "TextLine")


_MIN_SIDE = 32
"""Pixels. Networks downsample by this factor, so a thinner input would have no features."""


class EdgeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Resize the shorter side to a length, with a limit for the longer side. No side is shorter than 32.

    The image processors of DETR do this, and, with `multiple`, PaddleOCR's text detection.

    Attributes:
        shortest: length of the shorter side, pixels.
        longest: maximum length of the longer side, pixels.
        multiple: both sides are rounded to a multiple of this, which changes the aspect ratio slightly.
    """

    shortest: int
    longest: int
    multiple: int = 1

    @property
    def summary(self) -> str:
        """Return the rule in words."""
        rounded = f", to multiples of {self.multiple}" if self.multiple > 1 else ""
        return f"shorter side to {self.shortest}, longer to at most {self.longest}{rounded}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the (height, width) of the input for an image of this size, pixels."""
        scale = min(self.shortest / min(height, width), self.longest / max(height, width))
        return self._rounded(height * scale), self._rounded(width * scale)

    def _rounded(self, side: float) -> int:
        return max(_MIN_SIDE, round(side / self.multiple) * self.multiple)


class TextLine(msgspec.Struct, frozen=True, kw_only=True):
    """Fix the height, and derive the width from the image, as PaddleOCR's text recognition does.

    Attributes:
        height: pixels.
        min_width: minimum width, pixels; a narrower image is padded.
        max_width: maximum width, pixels; the height of a wider image is reduced.
    """

    height: int
    min_width: int
    max_width: int

    @property
    def summary(self) -> str:
        """Return the rule in words."""
        return f"height {self.height}, width that of the image, {self.min_width} to {self.max_width}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the (height, width) of the input for an image of this size, pixels."""
        return self.height, min(max(math.ceil(self.height * width / height), self.min_width), self.max_width)


DynamicSize = EdgeLimits | TextLine
