"""Import a model's code from its own folder, isolated from modules of the same name in other models.

Each model's folder becomes a package with a unique name. Import statements in its files search that folder first, as in
a script, and then the installed packages. They never find this distribution's `app`, `metadata` and `tasks`, so a model
may use these names. Models import the public API from `charioteer`.
"""

import ast
import builtins
import importlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from app.core.settings.model import ModelError, read_bounded

_IMPLEMENTATION = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")

_MAX_BYTES = 1024 * 1024

_OWN_PACKAGES = ("app", "metadata", "tasks")
_INSTALL_ROOT = Path(__file__).resolve().parents[4]

_numbers = itertools.count(1)


class ModelCode(MetaPathFinder):
    """The code in a model's folder. `package` is the package name of its modules in `sys.modules`."""

    def __init__(self, folder: Path) -> None:
        self.package = f"charioteer_model_{next(_numbers)}"
        self._folder = str(folder.resolve())
        # An import statement looks up `__import__` in the builtins of its own module.
        self._builtins = {**vars(builtins), "__import__": self._import}
        root = ModuleType(self.package)
        root.__path__ = [self._folder]
        sys.modules[self.package] = root
        sys.meta_path.insert(0, self)

    def find(self, implementation: str) -> object:
        """Import ``module:Class`` from the folder, or else from the installed packages.

        Raise ModelError if the module does not exist, or does not contain the name. Raise BaseException if any
        exception of the module during import.
        """
        match = _IMPLEMENTATION.fullmatch(implementation)
        if match is None:
            raise ModelError(f"implementation: Expected module:Class, got {implementation!r}")
        importlib.invalidate_caches()
        module, name = match["module"], match["name"]
        try:
            imported = importlib.import_module(self._name(module))
        except ImportError as error:
            self._restore_names(error)
            if not isinstance(error, ModuleNotFoundError) or not f"{module}.".startswith(f"{error.name}."):
                raise
            message = f"implementation: There is no module {module!r}, neither in the folder nor installed"
            raise ModelError(message) from None
        try:
            return getattr(imported, name)
        except AttributeError:
            raise ModelError(f"implementation: Module {module!r} has no {name!r}") from None

    def unload(self) -> None:
        """Remove the folder's modules from `sys.modules`. Objects in use keep working."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        # Another thread may import meanwhile, so the names are copied in one step.
        for name in list(sys.modules):
            if name == self.package or name.startswith(f"{self.package}."):
                del sys.modules[name]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Find a module of the folder."""
        if not fullname.startswith(f"{self.package}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        top = fullname.removeprefix(f"{self.package}.")
        if spec is None and top in _OWN_PACKAGES and _is_own_package(top):
            # Our package hides other packages of the same name on `sys.path`.
            others = [entry for entry in sys.path if Path(entry).resolve() != _INSTALL_ROOT]
            spec = PathFinder.find_spec(fullname, others)
            spec = spec if spec is not None and spec.origin is not None else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, self._builtins)
        return spec

    def _name(self, module: str) -> str:
        """Return the name of `module` in `sys.modules`.

        Raise ModuleNotFoundError if only this distribution has a module of this name.
        """
        top = module.partition(".")[0]
        spec = self.find_spec(f"{self.package}.{top}", [self._folder])
        # As in Python, any other module of the same name precedes a folder without ``__init__.py``, except ours.
        if spec is not None and (spec.origin is not None or top in _OWN_PACKAGES or _find_top_level(top) is None):
            return f"{self.package}.{module}"
        if top in _OWN_PACKAGES and _is_own_package(top):
            message = f"No module named {module!r}; import the public API of Charioteer from 'charioteer'"
            raise ModuleNotFoundError(message, name=module)
        return module

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  the import statement's own names
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        full_name = name if level else self._name(name)
        try:
            if full_name == name or fromlist:
                return builtins.__import__(full_name, globals, locals, fromlist or (), level)
            importlib.import_module(full_name)
        except ImportError as error:
            self._restore_names(error)
            raise
        return sys.modules[f"{self.package}.{name.partition('.')[0]}"]

    def _restore_names(self, error: ImportError) -> None:
        """Remove the package prefix from the names in `error`, which the model's author does not know."""
        prefix = f"{self.package}."
        if error.msg:
            error.msg = error.msg.replace(prefix, "")
        if error.name:
            error.name = error.name.removeprefix(prefix)


def _is_own_package(top: str) -> bool:
    """Return whether the top-level module `app`, `metadata` or `tasks` belongs to this distribution."""
    spec = _find_top_level(top)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve().parents[1] == _INSTALL_ROOT


def _find_top_level(top: str) -> ModuleSpec | None:
    """Return the spec of a top-level module, loaded or not."""
    loaded = sys.modules.get(top)
    return importlib.util.find_spec(top) if loaded is None else loaded.__spec__


class _Loader(SourceFileLoader):
    """Executes a module of a model with the folder's own `__import__`."""

    def __init__(self, fullname: str, path: str, module_builtins: Mapping[str, Any]) -> None:
        super().__init__(fullname, path)
        self._builtins = module_builtins

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        # Disable bytecode: the folder may be read-only, is watched for changes, and may change within one second of
        # the timestamp in the bytecode.
        raise OSError(f"{path} is not cached")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._builtins
        super().exec_module(module)


def read_classes(file: Path) -> Mapping[str, set[str]]:
    """Return the methods and attributes that each class of a file defines itself, without running it.

    Raise ModelError if the file cannot be read, or is not Python code.
    """
    try:
        module = ast.parse(read_bounded(file, _MAX_BYTES))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"{file} is not Python code: {error}") from None
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    return {node.name: set(map(_defined_name, node.body)) for node in classes}


def _defined_name(statement: ast.stmt) -> str:
    """Return the name that a statement of a class defines; "" if it defines none."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case _:
            return ""
