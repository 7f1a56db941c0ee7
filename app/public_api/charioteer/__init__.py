"""The public Python API: types for Python models, models without a server, and the application for Ray Serve.

The packages of this distribution are called `app`, `metadata` and `tasks`. A user's project may have packages with the
same names. A user's process therefore imports them as `charioteer.app`, `charioteer.metadata` and `charioteer.tasks`,
and the plain names stay free in `sys.modules`. The ``charioteer`` command uses the plain names. In both cases the
packages are found by their location, regardless of `sys.path`.
"""

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a type checker cannot read the plugins; a test compares these names with theirs
    from app.core.settings.model import ModelError as ModelError
    from app.plugins.bulk_run.ray_map import ray_map as ray_map
    from app.plugins.jatic.maite import as_maite as as_maite
    from app.plugins.layouts.graph_model import GraphModel as GraphModel
    from app.plugins.ray.application import ray_application as ray_application
    from app.public_api.in_process import InProcessModel as InProcessModel
    from tasks.image_classification import Classification as Classification
    from tasks.image_segmentation import SegmentationParameters as SegmentationParameters
    from tasks.image_segmentation import Segments as Segments
    from tasks.image_text_to_text import Answers as Answers
    from tasks.image_text_to_text import GenerationParameters as GenerationParameters
    from tasks.inference.error import ErrorKind as ErrorKind
    from tasks.inference.error import InferenceError as InferenceError
    from tasks.inference.error import invalid as invalid
    from tasks.object_detection import DetectionParameters as DetectionParameters
    from tasks.object_detection import Detections as Detections
    from tasks.oriented_object_detection import OrientedDetections as OrientedDetections
    from tasks.task import TaskType as TaskType
    from tasks.task import TokenUsage as TokenUsage
    from tasks.text_generation import Generation as Generation
    from tasks.text_generation import TextGenerationParameters as TextGenerationParameters
    from tasks.vision.filtering import SelectionParameters as SelectionParameters

_PACKAGES = ("app", "metadata", "tasks")
_HOME = next(folder for folder in Path(__file__).resolve().parents if (folder / "app" / "__init__.py").is_file())
"""The folder of our packages: the root of a checkout or of an installation."""

if not TYPE_CHECKING:  # with `__getattr__`, a type checker accepts any name

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return __dir__()
        # The names of core need no other plugin, and tools ask for private names of every module.
        ref = import_own("app.core").plugin.public.get(name)
        if ref is None and not name.startswith("_"):
            ref = _plugins().public.get(name)
        if ref is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = ref.load()
        globals()[name] = value
        return value


def __dir__() -> Sequence[str]:
    return sorted(_plugins().public)


def _plugins() -> Any:
    """Return the registry of plugins."""
    return import_own("app.core.plugins").registry()


def main() -> None:
    """Run the ``charioteer`` command."""
    import os
    import signal

    if os.getpid() == 1:
        # Linux drops a SIGTERM to the first process of a container until it has a handler; the imports take seconds.
        signal.signal(signal.SIGTERM, lambda number, _frame: os._exit(128 + number))
    try:
        claim_names()
        command_line = importlib.import_module("app.core.cli")
    except KeyboardInterrupt:
        sys.exit(130)
    command_line.main()


def import_own(name: str) -> Any:
    """Import a module of this distribution, such as ``app.core.plugins``.

    It has this name if the process has already imported our `app`, otherwise
    ``charioteer.app.core.plugins``.
    """
    loaded = getattr(sys.modules.get("app"), "__file__", None)
    plain = loaded is not None and Path(loaded).resolve().parent == _HOME / "app"
    return importlib.import_module(name if plain else f"charioteer.{name}")


def claim_names() -> None:
    """Reserve the names `app`, `metadata` and `tasks` for this distribution, in a process that runs only Charioteer."""
    sys.meta_path.insert(0, _Claim())


class _Claim(MetaPathFinder):
    """Find our packages by their plain names before those on `sys.path`."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [str(_HOME)]) if fullname in _PACKAGES else None


class _Finder(MetaPathFinder):
    """Find `charioteer.app`, `charioteer.metadata`, `charioteer.tasks` and their modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        parent, *names = fullname.split(".")
        if parent != "charioteer" or not names or names[0] not in _PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path if len(names) > 1 else [str(_HOME)])
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Run one of our modules with an import statement that finds our packages under their prefixed names."""

    def exec_module(self, module: ModuleType) -> None:
        # The import statement reads `__import__` from the builtins of its module.
        vars(module)["__builtins__"] = _BUILTINS
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,  # noqa: A002  the import statement's own names
    locals: Mapping[str, object] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    top = name.partition(".")[0]
    if level or top not in _PACKAGES:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    if fromlist:
        return builtins.__import__(f"charioteer.{name}", globals, locals, fromlist, 0)
    importlib.import_module(f"charioteer.{name}")
    return sys.modules[f"charioteer.{top}"]


_BUILTINS = {**vars(builtins), "__import__": _import}

sys.meta_path.insert(0, _Finder())
