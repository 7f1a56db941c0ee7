"""How images are cut into tiles: the setting of a model, and the parameters of an input."""

from typing import Annotated, Literal

import msgspec

from app.plugins.tiling.tiles import MAX_OVERLAP

Overlap = Annotated[float, msgspec.Meta(ge=0, le=MAX_OVERLAP)]
Size = int | bool | tuple[int, int]
"""The side of a tile in pixels, or [height, width]; 0 or false for no tiles, true for the size of the model."""

MIN_SIDE = 16
"""Pixels: the smallest side of a tile."""
_MAX_SIDE = 16_384


class TilingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The object `tiling` in model-settings.json.

    Attributes:
        size: of the tiles, unless a request has `tile`; by default that of the model's input, or 640 if it takes any.
        overlap: fraction of a tile that its neighbour shares, at least; unless a request has `overlap`.
        full: whether the model also gets the whole image, for objects that are larger than a tile.
        merge: `join` joins the parts of an object that tiles cut, `nms` only drops duplicates, and `none` keeps all.
        max_tiles: maximum number of tiles of one request.
    """

    size: Size = True
    overlap: Overlap = 0.2
    full: bool = True
    merge: Literal["join", "nms", "none"] = "join"
    max_tiles: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 256

    def __post_init__(self) -> None:
        if fault := size_fault(self.size):
            raise ValueError(f"size: {fault}")


class TilingSection(msgspec.Struct, frozen=True, kw_only=True):
    """The setting in model-settings.json; None without it."""

    tiling: TilingSettings | None = None


class TileParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of an input with large images.

    Attributes:
        tile: the side of a tile in pixels, or [height, width]; 0 or false for the whole image only, true for the size
            that the model's settings or its input have.
        overlap: fraction of a tile that its neighbour shares, at least.
    """

    tile: Size | None = None
    overlap: Overlap | None = None


def size_fault(size: Size) -> str:
    """Return what is wrong with the size of a tile, empty if it is valid."""
    if isinstance(size, bool) or size == 0:
        return ""
    sides = size if isinstance(size, tuple) else (size,)
    if all(MIN_SIDE <= side <= _MAX_SIDE for side in sides):
        return ""
    shown = list(size) if isinstance(size, tuple) else size
    return f"Expected {MIN_SIDE}..{_MAX_SIDE} pixels, [height, width], or 0 for no tiles, got {shown}"
