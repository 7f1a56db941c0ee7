"""The parameters of inputs, to which plugins add their own."""

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

import msgspec

StructT = TypeVar("StructT", bound=msgspec.Struct)

Field = tuple[str, Any, Any]
"""The name, type and default of a field."""

_added: dict[str, Field] = {}
_extended: set[type] = set()


class InputParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of an input. Objects that were read from a request also have the parameters of plugins."""

    def of(self, kind: type[StructT]) -> StructT:
        """Return the parameters of a plugin, which lists this type; their defaults for an object made by code."""
        return section(self, kind)


def section(values: msgspec.Struct, kind: type[StructT]) -> StructT:
    """Return the field of `values` with the type `kind`, or else an object of it from the fields with its names."""
    part = next((value for name in values.__struct_fields__ if type(value := getattr(values, name)) is kind), None)
    if part is not None:
        return part
    return kind(**{name: getattr(values, name) for name in kind.__struct_fields__ if hasattr(values, name)})


def add_parameters(fields: Iterable[Field]) -> None:
    """Add the parameters of a plugin to those of every task. Raise ValueError if another one has a name of them."""
    for field in fields:
        if _added.setdefault(field[0], field) != field:
            raise ValueError(f"the parameter {field[0]} exists already")
    extended.cache_clear()


@cache
def extended(kind: Any) -> Any:
    """Return a type of `InputParameters` with the parameters of plugins. Raise ValueError for a name that both have."""
    if not _added or kind in _extended or not issubclass(kind, InputParameters):
        return kind
    if shared := _added.keys() & {*kind.__struct_fields__}:
        raise ValueError(f"the parameter {min(shared)} of a plugin exists already in {kind.__name__}")

    def reduce(parameters: msgspec.Struct) -> tuple[Any, ...]:
        # The class is no attribute of a module, so that another process makes it again.
        return _restore, (kind, msgspec.structs.asdict(parameters))

    made = msgspec.defstruct(
        kind.__name__,
        _added.values(),
        bases=(kind,),
        namespace={"__reduce__": reduce},
        frozen=True,
        kw_only=True,
    )
    _extended.add(made)
    return made


def _restore(kind: type[InputParameters], values: dict[str, Any]) -> InputParameters:
    return extended(kind)(**values)
