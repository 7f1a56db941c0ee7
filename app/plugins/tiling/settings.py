"""Options of ``charioteer predict``."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter


@Parameter(name="*", group=Group("Tiles", sort_key=30))
@dataclass(frozen=True, kw_only=True)
class TileOptions:
    """Large images in tiles."""

    tile: Annotated[int | None, Parameter(show_default=False)] = None
    """Side of the tiles into which the image is cut, in pixels; 0 for the whole image only."""
    overlap: Annotated[float | None, Parameter(show_default=False)] = None
    """Fraction of a tile that its neighbour shares."""
    max_tiles: Annotated[int | None, Parameter(show_default=False)] = None
    """Maximum number of tiles; by default 256, or that of the model's settings."""
