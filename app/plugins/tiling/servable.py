"""Answer the large images of a request tile by tile."""

from collections.abc import Generator, Sequence
from copy import copy
from typing import Any

import msgspec

from app.core.engine.models.servable import Servable, call_model
from app.plugins.tiling.merging import TileMerger
from app.plugins.tiling.parameters import MIN_SIDE, Size, TileParameters, TilingSettings, size_fault
from app.plugins.tiling.pixel_merging import PixelMerger
from app.plugins.tiling.tiles import Tile, count_tiles, smallest_tile, tiles_of
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits
from tasks.inference.parameters import InputParameters
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResult, Prediction
from tasks.task import InputGroup, Model
from tasks.vision.image import Image, ScoredTile

TILES = "tiles"
"""The output parameter with the number of tiles of an input, without the calls for whole images."""


class TiledServable(Servable):
    """A servable that cuts images into tiles, if its settings or the request ask for it; its model gets the tiles.

    `input_size` is the (height, width) of the model's input in pixels, and `chunk` the number of tiles in one call.
    Models that give each pixel a class have a `pixel_floor`, the score above which the pixel belongs to it.
    """

    def __init__(
        self,
        servable: Servable,
        settings: TilingSettings,
        input_size: tuple[int, int],
        chunk: int = 1,
        pixel_floor: float | None = None,
    ) -> None:
        super().__init__(servable.task, servable.model, servable.description, servable.defaults, servable.downscale)
        self.loaded_bytes = servable.loaded_bytes
        self._settings, self._input_size, self._chunk, self._pixel_floor = settings, input_size, chunk, pixel_floor
        self._supported = servable.task.task_type.geometry is not None
        if not self._supported:
            # Commands and the page offer no parameters without effect.
            self.parameters_type = _without_tiles(self.parameters_type)

    def predict(self, request: InferenceRequest, limits: Limits) -> InferenceResult:
        return super(TiledServable, self._at_full_size(request)).predict(request, limits)

    def predict_each(self, request: InferenceRequest, limits: Limits) -> Generator[InferenceResult]:
        yield from super(TiledServable, self._at_full_size(request)).predict_each(request, limits)

    def answer(self, groups: Sequence[InputGroup[Any]], model: Model[Any, Any], *numbers: int) -> InferenceResult:
        # Most requests ask for no tiles: they should not pay for them.
        tiles = self._tiles(groups) if self._settings.size or any(map(_tile_of, groups)) else ()
        every = [own for of_group in tiles for own in of_group]
        if not any(every):
            return super().run(groups, model, *numbers)[0]

        def answer_tiles(items: Sequence[Any], /) -> Sequence[Any]:
            whole = [item for item, own in zip(items, every, strict=True) if not own]
            predictions = iter(call_model(model, whole) if whole else ())
            return [
                self._merged(model, item, own) if own else next(predictions)
                for item, own in zip(items, every, strict=True)
            ]

        result = super().run(groups, answer_tiles, *numbers)[0]
        outputs = [
            msgspec.structs.replace(output, parameters={**output.parameters, TILES: count}) if count else output
            for output, count in zip(result.outputs, (sum(map(len, of_group)) for of_group in tiles), strict=True)
        ]
        return msgspec.structs.replace(result, outputs=outputs)

    def run(
        self, groups: Sequence[InputGroup[Any]], model: Model[Any, Any], decode_ns: int, first_index: int = 0
    ) -> tuple[InferenceResult, Sequence[Any]]:
        for group, tiles in zip(groups, self._tiles(groups), strict=True):
            if any(tiles):
                advice = "send 0, and explain the answer without them"
                message = f"Explanations are for the whole image, not for tiles: {advice}"
                raise invalid(message, f"inputs[{group.index}].parameters.tile")
        return super().run(groups, model, decode_ns, first_index)

    def _at_full_size(self, request: InferenceRequest) -> "TiledServable":
        """Return a servable that decodes images at full size if they may be tiled."""
        if self.downscale is None or not (
            self._settings.size or any("tile" in request.parameters_of(index) for index in range(len(request.inputs)))
        ):
            return self
        servable = copy(self)
        servable.downscale = None
        return servable

    def _tiles(self, groups: Sequence[InputGroup[Any]]) -> Sequence[Sequence[Sequence[Tile]]]:
        """Return the tiles of each image of each input; an image that is not larger than a tile has none.

        Raise INVALID_REQUEST for an invalid size, or a task without tiles; TOO_LARGE for too many tiles.
        """
        tiles: list[Sequence[Sequence[Tile]]] = []
        remaining = self._settings.max_tiles
        for group in groups:
            parameters = _tile_parameters(group)
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
            if size and not self._supported:
                raise invalid(f"Expected none: a model of {self.task.task_type} is not tiled", path)
            if size is True and self._settings.size:
                size = self._settings.size
        if size is True:
            return self._input_size
        return (size if isinstance(size, tuple) else (size, size)) if size else None

    def _merged(self, model: Model[Any, Any], item: Any, tiles: Sequence[Tile]) -> Prediction:
        """Call the model for the tiles of an image in chunks, and merge its predictions."""
        image: Image = item.image
        if self._pixel_floor is not None:
            merger, kind = PixelMerger(image, list(tiles), self._pixel_floor), ScoredTile
            # A class may be rarer in one tile than in the image.
            parameters = msgspec.structs.replace(item.parameters, score_threshold=0.0)
            item = msgspec.structs.replace(item, parameters=parameters)
        else:
            (height, width), first = self._input_size, tiles[0]
            scale = (first.right - first.left) / width, (first.bottom - first.top) / height
            merger, kind = TileMerger(image, scale, item.parameters, self._settings), Image
            tiles = [*tiles, Tile(0, 0, image.width, image.height)] if self._settings.full else tiles
        for start in range(0, len(tiles), self._chunk):
            chunk = tiles[start : start + self._chunk]
            # Tiles are views: of their pixels, only those of one chunk are copied at a time.
            inputs = [msgspec.structs.replace(item, image=tile.cut(image, kind)) for tile in chunk]
            for tile, prediction in zip(chunk, call_model(model, inputs), strict=True):
                merger.add(tile, prediction)
        return merger.result()


def _without_tiles(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a type with the fields of `kind`, except those of tiles."""
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in TileParameters.__struct_fields__]
    return msgspec.defstruct(
        kind.__name__, [(field.name, field.type, field.default) for field in fields], frozen=True, kw_only=True
    )


def _tile_of(group: InputGroup[Any]) -> object:
    """Return the parameter `tile` of an input, None without it."""
    return getattr(getattr(group.items[0], "parameters", None), "tile", None) if group.items else None


def _tile_parameters(group: InputGroup[Any]) -> TileParameters:
    """Return the parameters of an input; those of tensors are not read."""
    parameters = getattr(group.items[0], "parameters", None) if group.items else None
    return parameters.of(TileParameters) if isinstance(parameters, InputParameters) else TileParameters()
