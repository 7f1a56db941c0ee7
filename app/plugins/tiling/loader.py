"""Give loaded models the step that cuts large images into tiles, as a model's settings and files declare.

Two exporters write the size and overlap of tiles to the metadata of ONNX files: QGIS Deepness (``tiles_size`` in pixels
and ``tiles_overlap`` in percent, with ``det_conf`` and ``det_iou_thresh``), and OpenVINO's Training Extensions for
Model API (``model_info tile_size`` and ``model_info tiles_overlap``, a fraction).
"""

from collections.abc import Callable, Mapping

import msgspec

from app.core.engine.models.servable import Servable
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.plugins.tiling.parameters import TileParameters, TilingSection, TilingSettings
from app.plugins.tiling.step import TilingStep
from metadata.model import Fact, ModelMetadata, Origin
from tasks.inference.parameters import InputParameters
from tasks.inference.request import validation_error

_ANY_SIDE = 640
"""Pixels: the side of tiles for models that take images of any size."""
_OFF = TilingSettings(size=False)
_SIZES = ("tiles_size", "model_info tile_size")
_OVERLAPS = ("tiles_overlap", "model_info tiles_overlap")
_PIXEL_LAYOUTS: Mapping[str, float] = {"semantic": 0.0, "class-map": 0.0, "mask": 0.5, "mask-logits": 0.5}
"""Layouts that give each pixel a class, with the score above which it belongs to one."""
_PARAMETERS = {"det_conf": "score_threshold", "det_iou_thresh": "iou_threshold"}


def _tiling_of(source: ModelSource, description: ModelMetadata) -> tuple[TilingSettings, Origin]:
    """Return how images are cut, and the origin of that. Raise ModelError for tiles that are not possible."""
    declared = source.settings.of(TilingSection).tiling
    if description.task_type.geometry is None:
        if declared is not None:
            place = f'{source.folder / SETTINGS_FILE}: "tiling"'
            raise ModelError(f"{place} is for models that find objects in images, not for {description.task_type}")
        return _OFF, Origin.CONVENTION
    if declared is not None:
        return declared, Origin.DECLARED
    size = _number(source, description.properties, _SIZES)
    if size is None:
        return _OFF, Origin.CONVENTION
    overlap = _number(source, description.properties, _OVERLAPS)
    share = {} if overlap is None else {"overlap": overlap / 100 if overlap > 1 else overlap}
    try:
        return msgspec.convert({"size": round(size), **share}, TilingSettings), Origin.MODEL_FILE
    except msgspec.ValidationError as error:
        raise _unusable(source, str(validation_error(error))) from None


def _parameters_of(source: ModelSource, description: ModelMetadata) -> Mapping[str, object]:
    """Return the request parameters that Deepness' metadata declare. Raise ModelError if one is not a number."""
    values = {ours: _number(source, description.properties, (name,)) for name, ours in _PARAMETERS.items()}
    return {name: value for name, value in values.items() if value is not None}


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


def _number(source: ModelSource, properties: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    name = next((name for name in names if name in properties), None)
    if name is None:
        return None
    try:
        return msgspec.json.decode(properties[name].strip(' "'), type=float)
    except msgspec.DecodeError:
        raise _unusable(source, f"{name}: {properties[name]:.60}") from None


def _unusable(source: ModelSource, found: str) -> ModelError:
    advice = f'declare "tiling" in {SETTINGS_FILE}, or {{"tiling": {{"size": 0}}}} for no tiles'
    return ModelError(f"{source.folder}: the metadata of the model cannot be used ({found}); {advice}")


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
        settings, origin = _tiling_of(source, description)
        if origin is Origin.MODEL_FILE:
            servable.defaults = {**_parameters_of(source, description), **servable.defaults}
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
    settings, origin = _tiling_of(source, description)
    if not settings.size or any(fact.topic == "tiles" for fact in description.facts):
        return description
    size = _input_size(source, description) if settings.size is True else settings.size
    height, width = size if isinstance(size, tuple) else (size, size)
    by_objects = f"{' and the whole image' * settings.full}, {settings.merge}"
    how = ", merged by pixels" if description.layout in _PIXEL_LAYOUTS else by_objects
    fact = Fact("tiles", f"{width}x{height} pixels, overlap {settings.overlap:g}{how}", origin)
    return msgspec.structs.replace(description, facts=(*description.facts, fact))
