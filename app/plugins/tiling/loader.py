"""Give loaded models the step that cuts large images into tiles, as a model's settings declare."""

from collections.abc import Callable, Mapping

import msgspec

from app.core.engine.models.servable import Servable
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.plugins.tiling.parameters import TileParameters, TilingSection, TilingSettings
from app.plugins.tiling.step import TilingStep
from metadata.model import Fact, ModelMetadata, Origin
from tasks.inference.parameters import InputParameters

_ANY_SIDE = 640
"""Pixels: the side of tiles for models that take images of any size."""
_OFF = TilingSettings(size=False)
_PIXEL_LAYOUTS: Mapping[str, float] = {"semantic": 0.0, "class-map": 0.0, "mask": 0.5, "mask-logits": 0.5}
"""Layouts that give each pixel a class, with the score above which it belongs to one."""


def _tiling_of(source: ModelSource, description: ModelMetadata) -> TilingSettings:
    """Return how images are cut. Raise ModelError if a model that finds no objects declares tiles."""
    declared = source.settings.of(TilingSection).tiling
    if declared is not None and description.task_type.geometry is None:
        place = f'{source.folder / SETTINGS_FILE}: "tiling"'
        raise ModelError(f"{place} is for models that find objects in images, not for {description.task_type}")
    return declared or _OFF


def _input_size(source: ModelSource, description: ModelMetadata) -> tuple[int, int]:
    """Return the (height, width) of the model's input in pixels, as far as it is known."""
    if source.settings.preprocessing.size is not None:
        return source.settings.preprocessing.size
    for spec in description.inputs:
        if len(spec.shape) >= 3:
            channels_last = spec.shape[-1] in (1, 3) and spec.shape[-3] not in (1, 3)
            height, width = spec.shape[-3:-1] if channels_last else spec.shape[-2:]
            if height > 0 and width > 0:
                return height, width
    return _ANY_SIDE, _ANY_SIDE


def _chunk_size(source: ModelSource, description: ModelMetadata) -> int:
    """Return how many tiles one call of the model takes: a batch of the settings, or of a graph with a fixed batch."""
    fixed = [spec.shape[0] for spec in description.inputs if len(spec.shape) == 4 and spec.shape[0] > 0]
    return max([source.settings.batching.max_size, *fixed])


class TilingLoader:
    """Adds its step to every model whose inputs have parameters, because any request may ask for tiles."""

    elsewhere = False

    def accepts(self, source: ModelSource, /) -> bool:
        del source
        return True

    def inspect(self, source: ModelSource, inspect: Callable[[ModelSource], ModelMetadata], /) -> ModelMetadata:
        return _described(source, inspect(source))

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable], /) -> Servable:
        servable = load(source)
        servable.description = description = _described(source, servable.description)
        settings = _tiling_of(source, description)
        size, chunk = _input_size(source, description), _chunk_size(source, description)
        if issubclass(servable.task.parameters_type, InputParameters):
            floor = _PIXEL_LAYOUTS.get(description.layout)
            servable.split_step = TilingStep(source.name, servable.task.task_type, settings, size, chunk, floor)
        if servable.task.task_type.geometry is None:
            # Commands and the page offer no parameters without effect.
            servable.parameter_types = tuple(kind for kind in servable.parameter_types if kind is not TileParameters)
        return servable


LOADERS = (TilingLoader(),)


def _described(source: ModelSource, description: ModelMetadata) -> ModelMetadata:
    """Return the metadata with how images are cut, if they are cut without a request for it."""
    settings = _tiling_of(source, description)
    if not settings.size or any(fact.topic == "tiles" for fact in description.facts):
        return description
    size = _input_size(source, description) if settings.size is True else settings.size
    height, width = size if isinstance(size, tuple) else (size, size)
    by_objects = f"{' and the whole image' * settings.full}, {settings.merge}"
    how = ", merged by pixels" if description.layout in _PIXEL_LAYOUTS else by_objects
    fact = Fact("tiles", f"{width}x{height} pixels, overlap {settings.overlap:g}{how}", Origin.DECLARED)
    return msgspec.structs.replace(description, facts=(*description.facts, fact))
