"""Compare models with the tensors in the configuration of another server."""

from collections.abc import Callable, Sequence

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from metadata.model import ModelMetadata


class ImportedModelLoader:
    """Rejects a graph whose tensors differ from those that its configuration names."""

    elsewhere = False

    def accepts(self, source: ModelSource, /) -> bool:
        return source.imported is not None

    def inspect(self, source: ModelSource, inspect: Callable[[ModelSource], ModelMetadata], /) -> ModelMetadata:
        metadata = inspect(source)
        _check_tensors(source, metadata)
        return metadata

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable], /) -> Servable:
        servable = load(source)
        _check_tensors(source, servable.description)
        return servable


LOADERS = (ImportedModelLoader(),)


def _check_tensors(source: ModelSource, metadata: ModelMetadata) -> None:
    imported = source.imported
    if imported is None:
        return
    for kind, declared, specs in (
        ("input", imported.inputs, metadata.inputs),
        ("output", imported.outputs, metadata.outputs),
    ):
        shapes = {spec.name: spec.shape for spec in specs}
        for spec in specs:
            if (datatype := imported.datatypes.get(spec.name, spec.datatype)) != spec.datatype:
                raise ModelError(
                    f"{source.folder}: {imported.file} gives the {kind} {spec.name!r} the data type {datatype}; "
                    f"that of the model is {spec.datatype}"
                )
        for name, shape in declared.items():
            if name not in shapes:
                raise ModelError(
                    f"{source.folder}: {imported.file} names the {kind} {name!r}; those of the model are "
                    f"{', '.join(shapes) or 'none'}"
                )
            if not _fits(shape, shapes[name]):
                raise ModelError(
                    f"{source.folder}: {imported.file} gives the {kind} {name!r} the shape {list(shape)}; "
                    f"that of the model is {list(shapes[name])}"
                )


def _fits(declared: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether two shapes agree; -1 is any size. ONNX Runtime has an empty shape for an unknown rank."""
    return not shape or (
        len(declared) == len(shape) and all(a == b or -1 in (a, b) for a, b in zip(declared, shape, strict=True))
    )
