"""Give loaded models the step that cuts large images into tiles."""

from collections.abc import Callable

import msgspec

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from app.plugins.tiling.declared import PIXEL_LAYOUTS, chunk_size, input_size, parameters_of, tiling_of
from app.plugins.tiling.parameters import TileParameters
from app.plugins.tiling.step import TilingStep
from metadata.model import Fact, ModelMetadata, Origin
from tasks.inference.parameters import InputParameters


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
        settings, origin = tiling_of(source, description)
        if origin is Origin.MODEL_FILE:
            servable.defaults = {**parameters_of(source, description), **servable.defaults}
        size, chunk = input_size(source, description), chunk_size(source, description)
        if issubclass(servable.task.parameters_type, InputParameters):
            floor = PIXEL_LAYOUTS.get(description.layout)
            servable.split_step = TilingStep(source.name, servable.task.task_type, settings, size, chunk, floor)
        if servable.task.task_type.geometry is None:
            # Commands and the page offer no parameters without effect.
            servable.parameter_types = tuple(kind for kind in servable.parameter_types if kind is not TileParameters)
        return servable


LOADERS = (TilingLoader(),)


def _described(source: ModelSource, description: ModelMetadata) -> ModelMetadata:
    """Return the metadata with how images are cut, if they are cut without a request for it."""
    settings, origin = tiling_of(source, description)
    if not settings.size or any(fact.topic == "tiles" for fact in description.facts):
        return description
    size = input_size(source, description) if settings.size is True else settings.size
    height, width = size if isinstance(size, tuple) else (size, size)
    by_objects = f"{' and the whole image' * settings.full}, {settings.merge}"
    how = ", merged by pixels" if description.layout in PIXEL_LAYOUTS else by_objects
    fact = Fact("tiles", f"{width}x{height} pixels, overlap {settings.overlap:g}{how}", origin)
    return msgspec.structs.replace(description, facts=(*description.facts, fact))
