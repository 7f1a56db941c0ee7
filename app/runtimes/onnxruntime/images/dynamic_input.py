"""Compute the input size from each image, for graphs that accept any size."""

import msgspec

_MIN_SIDE = 32
"""Pixels. Networks downsample by this factor, so a thinner input would have no features."""


class DynamicSize(msgspec.Struct, frozen=True, kw_only=True):
    """A rule for the size of the input. Its text describes it for users."""

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the (height, width) of the input for an image of this size, pixels."""
        raise NotImplementedError


class EdgeLimits(DynamicSize, frozen=True, kw_only=True):
    """Resize the shorter side to a length, with a limit for the longer side. No side is shorter than 32.

    The image processors of DETR do this.

    Attributes:
        shortest: length of the shorter side, pixels.
        longest: maximum length of the longer side, pixels.
        floor: both sides are truncated to a multiple of this, as YOLOS does.
    """

    shortest: int
    longest: int
    floor: int = 1

    def __str__(self) -> str:
        rounded = f", to multiples of {self.floor}" if self.floor > 1 else ""
        return f"shorter side to {self.shortest}, longer to at most {self.longest}{rounded}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        shorter, longer = min(height, width), max(height, width)
        scaled = float(self.shortest)
        if longer / shorter * scaled > self.longest:
            scaled = self.longest * shorter / longer
        # The sides are rounded as in ``get_size_with_aspect_ratio`` of transformers.
        sides = (round(scaled), int(scaled * longer / shorter))
        short, long = (max(_MIN_SIDE, side - side % self.floor) for side in sides)
        return (short, long) if height <= width else (long, short)


class TextPage(DynamicSize, frozen=True, kw_only=True):
    """Reduce large images as RapidOCR does, then enlarge small ones and round to multiples of 32 as PaddleOCR does.

    Attributes:
        min_side: minimum length of the shorter side, pixels.
        max_side: maximum length of the longer side before the image is enlarged, pixels.
        max_enlarged: maximum length of the longer side of an enlarged image, pixels. It goes before `min_side`.
    """

    min_side: int
    max_side: int
    max_enlarged: int

    def __str__(self) -> str:
        return f"longer side reduced to {self.max_side}, then shorter one enlarged to {self.min_side}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        longer = max(height, width)
        scale = max(min(1.0, self.max_side / longer), self.min_side / min(height, width))
        scale = min(scale, self.max_enlarged / longer)
        rounded_height, rounded_width = (
            max(_MIN_SIDE, round(int(side * scale) / _MIN_SIDE) * _MIN_SIDE) for side in (height, width)
        )
        return rounded_height, rounded_width


class TextLine(DynamicSize, frozen=True, kw_only=True):
    """Fix the height, and derive the width from the image, as PaddleOCR's text recognition does.

    Attributes:
        height: pixels.
        min_width: minimum width, pixels; a narrower image is padded.
        max_width: maximum width, pixels; a wider image is squeezed.
    """

    height: int
    min_width: int
    max_width: int

    def __str__(self) -> str:
        return f"height {self.height}, width that of the image, {self.min_width} to {self.max_width}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        return self.height, min(max(int(self.height * (width / height)), self.min_width), self.max_width)


class OwnSize(DynamicSize, frozen=True, kw_only=True):
    """Keep the size of the image, for graphs that resize it by themselves, as torchvision's detectors do."""

    def __str__(self) -> str:
        return "that of the image"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        return height, width
