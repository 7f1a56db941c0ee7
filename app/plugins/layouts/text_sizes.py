"""The input sizes of PaddleOCR's detectors and recognisers of text, which follow the size of each image."""

from typing import ClassVar

import msgspec

from app.core.runtimes.onnxruntime.images.preprocessing import MIN_SIDE, Resize


class TextPage(msgspec.Struct, frozen=True, kw_only=True):
    """Reduce large images as RapidOCR does, then enlarge small ones and round to multiples of 32 as PaddleOCR does.

    The longer side has at most `max_side` pixels before the image is enlarged, and `max_enlarged` after that. The
    shorter side has at least `min_side` pixels, unless the longer one exceeds `max_enlarged`.
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
            max(MIN_SIDE, round(int(side * scale) / MIN_SIDE) * MIN_SIDE) for side in (height, width)
        )
        return rounded_height, rounded_width


class TextLine(msgspec.Struct, frozen=True, kw_only=True):
    """Fix the height, and derive the width from the image, as PaddleOCR's text recognition does; all in pixels.

    A narrower image than `min_width` is padded. A wider one than `max_width` is squeezed.
    """

    resize: ClassVar[Resize] = "line"
    height: int
    min_width: int
    max_width: int

    def __str__(self) -> str:
        return f"height {self.height}, width that of the image, {self.min_width} to {self.max_width}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        return self.height, min(max(int(self.height * (width / height)), self.min_width), self.max_width)
