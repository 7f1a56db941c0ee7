"""Take the large images of a request tile by tile, and count the tiles."""

from collections.abc import Sequence
from typing import Any

import msgspec
from prometheus_client import Counter

from app.core.engine.models.steps import Runner
from app.core.hooks import Host, Parts
from app.plugins.tiling.merging import TileMerger
from app.plugins.tiling.parameters import MIN_SIDE, Size, TileParameters, TilingSettings, size_fault
from app.plugins.tiling.pixel_merging import PixelMerger
from app.plugins.tiling.tiles import Tile, count_tiles, smallest_tile, tiles_of
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.response import Prediction
from tasks.task import InputGroup, TaskType
from tasks.vision.image import Image, ScoredTile

TILES = Counter("charioteer_tiles", "Tiles of large images that models processed.", ("model",), registry=None)
"""By model. It belongs to the process, so that a request without tiles is not observed."""


def start(host: Host) -> Parts:
    """Add the counter to the metrics of the server."""
    host.metrics.register(TILES)
    return Parts()


class TilingStep:
    """Cuts images into tiles, if the settings of the model or the request ask for it; the model gets the tiles.

    `input_size` is the (height, width) of the model's input in pixels, and `chunk` the number of tiles in one call.
    Models that give each pixel a class have a `pixel_floor`, the score above which the pixel belongs to it.
    """

    parameter = "tile"
    output = "tiles"
    """The number of tiles of an input, without the calls for whole images."""

    def __init__(
        self,
        model_name: str,
        task_type: TaskType,
        settings: TilingSettings,
        input_size: tuple[int, int],
        chunk: int = 1,
        pixel_floor: float | None = None,
    ) -> None:
        self._tiles = TILES.labels(model_name)
        self._task_type = task_type
        self._settings, self._input_size, self._chunk, self._pixel_floor = settings, input_size, chunk, pixel_floor
        self.default = bool(settings.size)

    def split(self, groups: Sequence[InputGroup[Any]], /) -> Sequence[Sequence[Sequence[Tile]]]:
        """Return the tiles of each image of each input; an image that is not larger than a tile has none.

        Raise INVALID_REQUEST for an invalid size, or a task without tiles; TOO_LARGE for too many tiles.
        """
        tiles: list[Sequence[Sequence[Tile]]] = []
        remaining = self._settings.max_tiles
        for group in groups:
            parameters = group.items[0].parameters.of(TileParameters)
            size = self._size(parameters, f"inputs[{group.index}].parameters.tile")
            if size is None:
                tiles.append([()] * len(group.items))
                continue
            overlap = self._settings.overlap if parameters.overlap is None else parameters.overlap
            sizes = [(item.image.width, item.image.height) for item in group.items]
            counts = [
                count_tiles(width, size[1], overlap) * count_tiles(height, size[0], overlap) for width, height in sizes
            ]
            count = sum(count for count in counts if count > 1)
            if count > remaining:
                smallest = max(MIN_SIDE, smallest_tile(sizes, overlap, remaining))
                message = (
                    f"Expected at most {self._settings.max_tiles:,} tiles in one request, got {count:,} for this input"
                    f"; the smallest tile that fits is {smallest}"
                )
                path = f"inputs[{group.index}]" + ".parameters.tile" * ("tile" in group.parameters)
                raise InferenceError(ErrorKind.TOO_LARGE, message, path)
            remaining -= count
            tiles.append(
                [
                    tiles_of(*image_size, size, overlap) if count > 1 else ()
                    for image_size, count in zip(sizes, counts, strict=True)
                ]
            )
        return tiles

    def _size(self, parameters: TileParameters, path: str) -> tuple[int, int] | None:
        """Return the (height, width) of the tiles in pixels; None for no tiles."""
        size: Size = self._settings.size
        if parameters.tile is not None:
            size = parameters.tile
            if fault := size_fault(size):
                raise invalid(fault, path)
            if size and self._task_type.geometry is None:
                raise invalid(f"Expected none: a model of {self._task_type} is not tiled", path)
            if size is True and self._settings.size:
                size = self._settings.size
        if size is True:
            return self._input_size
        return (size if isinstance(size, tuple) else (size, size)) if size else None

    def merge(self, run: Runner, item: Any, tiles: Sequence[Tile], /) -> Prediction:
        """Run the model on the tiles of an image in chunks, and merge its predictions."""
        image: Image = item.image
        self._tiles.inc(len(tiles))
        if self._pixel_floor is not None:
            merger, kind = PixelMerger(image, list(tiles), self._pixel_floor), ScoredTile
            # A class may be rarer in one tile than in the image.
            item = msgspec.structs.replace(item, floor=0.0)
        else:
            (height, width), first = self._input_size, tiles[0]
            scale = (first.right - first.left) / width, (first.bottom - first.top) / height
            merger, kind = TileMerger(scale, item, self._settings), Image
            tiles = [*tiles, Tile(0, 0, image.width, image.height)] if self._settings.full else tiles
        for start in range(0, len(tiles), self._chunk):
            chunk = tiles[start : start + self._chunk]
            # Tiles are views: only the pixels of one chunk are copied at a time.
            inputs = [msgspec.structs.replace(item, image=tile.cut(image, kind)) for tile in chunk]
            for tile, prediction in zip(chunk, run(inputs), strict=True):
                merger.add(tile, prediction)
        return merger.result()
