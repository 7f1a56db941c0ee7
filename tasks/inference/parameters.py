"""The parameters of inputs, to which plugins add their own."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

StructT = TypeVar("StructT", bound=msgspec.Struct)

_added: list[type[msgspec.Struct]] = []


class InputParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of an input.

    `plugin_parameters` are objects with the parameters of plugins that were read beside its own; `of` returns them.
    """

    plugin_parameters: tuple[Any, ...] = ()

    def of(self, kind: type[StructT]) -> StructT:
        """Return the parameters of a plugin, which lists this type; their defaults if none was read."""
        return next((found for found in self.plugin_parameters if type(found) is kind), None) or kind()


def add_parameters(kinds: Iterable[type[msgspec.Struct]]) -> None:
    """Add the parameters of a plugin to the parameters of every task."""
    _added.extend(kind for kind in kinds if kind not in _added)
    added_to.cache_clear()
    parameter_types.cache_clear()


@cache
def added_to(kind: type[Any]) -> Sequence[type[msgspec.Struct]]:
    """Return the types of parameters that plugins add to a task's own."""
    return tuple(_added) if issubclass(kind, InputParameters) else ()


@cache
def parameter_types(kind: type[Any]) -> Mapping[str, Any]:
    """Return the types of the parameters of a task and of plugins, by name.

    Raise ValueError for a name that both have.
    """
    types = {field.name: field.type for field in msgspec.structs.fields(kind) if field.name != "plugin_parameters"}
    for field in [field for added in added_to(kind) for field in msgspec.structs.fields(added)]:
        if field.name in types:
            raise ValueError(f"the parameter {field.name} of a plugin exists already in {kind.__name__}")
        types[field.name] = field.type
    return types
