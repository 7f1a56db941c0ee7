"""Importing a model's code from its own folder, apart from the modules of the same names of every other model.

Each model's folder becomes a package with a name that no other has. Import statements in its files find the files
beside them first, as they would in a script, and everything that is installed after that.
"""

import builtins
import importlib
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from app.settings.model import ModelError

__all__ = ("ModelCode",)

_IMPLEMENTATION = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")

_numbers = itertools.count(1)


class ModelCode(MetaPathFinder):
    """The code in a model's folder.

    Args:
        folder: where it lies.

    Attributes:
        package: the name under which the folder's modules stand in `sys.modules`.
    """

    def __init__(self, folder: Path) -> None:
        self.package = f"charioteer_model_{next(_numbers)}"
        self._folder = str(folder.resolve())
        # The import statement looks `__import__` up in the builtins of the module that it stands in.
        self._builtins = {**vars(builtins), "__import__": self._import}
        root = ModuleType(self.package)
        root.__path__ = [self._folder]
        sys.modules[self.package] = root
        sys.meta_path.insert(0, self)

    def find(self, implementation: str) -> object:
        """What ``module:Class`` names, in the folder or, where it has no such module, among what is installed.

        Raises:
            ModelError: when there is no such module, or no such name in it.
            BaseException: whatever the module raises when it is imported.
        """
        found = _IMPLEMENTATION.fullmatch(implementation)
        if found is None:
            raise ModelError(f"implementation: Expected module:Class, got {implementation!r}")
        importlib.invalidate_caches()
        module, name = found["module"], found["name"]
        wanted = f"{self.package}.{module}" if self._has(module) else module
        try:
            imported = importlib.import_module(wanted)
        except ModuleNotFoundError as error:
            if error.name is None or not (wanted == error.name or wanted.startswith(f"{error.name}.")):
                raise
            message = f"implementation: There is no module {module!r}, neither in the folder nor installed"
            raise ModelError(message) from None
        try:
            return getattr(imported, name)
        except AttributeError:
            raise ModelError(f"implementation: Module {module!r} has no {name!r}") from None

    def forget(self) -> None:
        """Take the folder's modules out of `sys.modules`. What is still in use goes on working."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for name in [name for name in sys.modules if name == self.package or name.startswith(f"{self.package}.")]:
            del sys.modules[name]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Find a module of the folder."""
        if not fullname.startswith(f"{self.package}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, self._builtins)
        return spec

    def _has(self, module: str) -> bool:
        """Whether the folder has the module; a folder without ``__init__.py``, such as one of data, is none."""
        top = f"{self.package}.{module.partition('.')[0]}"
        spec = PathFinder.find_spec(top, [self._folder])
        return spec is not None and spec.origin is not None

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  the import statement's own names
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level or not self._has(name):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if fromlist:
            return builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist, 0)
        importlib.import_module(f"{self.package}.{name}")
        return sys.modules[f"{self.package}.{name.partition('.')[0]}"]


class _Loader(SourceFileLoader):
    """Runs a module of a model with the folder's own import statement."""

    def __init__(self, fullname: str, path: str, found: Mapping[str, Any]) -> None:
        super().__init__(fullname, path)
        self._builtins = found

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        # Without them no bytecode is read or written: a model's folder may be read-only, is watched for changes, and
        # may have been edited within the second that bytecode goes by.
        raise OSError(f"{path} is not cached")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._builtins
        super().exec_module(module)
