"""Values that the plugins of one server give each other, by their type."""

from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Provided:
    """The values of one server, which `Host.provide` adds and `Host.find` returns.

    Attributes:
        is_starting: whether plugins start, so that `find` would miss what later ones provide.
    """

    def __init__(self) -> None:
        self._values: dict[type, list[Any]] = {}
        self.is_starting = False

    def provide(self, kind: type[T], value: T) -> None:
        """Add a value, which `find` returns for the same type."""
        self._values.setdefault(kind, []).append(value)

    def find(self, kind: type[T]) -> Sequence[T]:
        """Return the values of a type, in the order in which plugins start. Raise RuntimeError while they start."""
        if self.is_starting:
            raise RuntimeError(f"find({kind.__name__}) in `start`: call it in `lifespan` or in a handler")
        return tuple(self._values.get(kind, ()))
