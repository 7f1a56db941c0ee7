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

if TYPE_CHECKING:
    from app.core.assembly.in_process import InProcessModel, as_maite
    from app.core.runtimes.onnxruntime.graph_model import GraphModel
    from app.core.settings.model import ModelError
    from tasks.image_classification import Classification
    from tasks.image_segmentation import SegmentationParameters, Segments
    from tasks.image_text_to_text import Answers, GenerationParameters
    from tasks.inference.error import ErrorKind, InferenceError, invalid
    from tasks.object_detection import DetectionParameters, Detections
    from tasks.oriented_object_detection import OrientedDetections
    from tasks.task import TaskType, TokenUsage
    from tasks.text_generation import Generation, TextGenerationParameters
    from tasks.token_classification import Entities, TokenParameters
    from tasks.vision.filtering import SelectionParameters

__all__ = (
    "Answers",
    "Classification",
    "DetectionParameters",
    "Detections",
    "Entities",
    "ErrorKind",
    "Generation",
    "GenerationParameters",
    "GraphModel",
    "InProcessModel",
    "InferenceError",
    "ModelError",
    "OrientedDetections",
    "SegmentationParameters",
    "Segments",
    "SelectionParameters",
    "TaskType",
    "TextGenerationParameters",
    "TokenParameters",
    "TokenUsage",
    "as_maite",
    "invalid",
    "ray_application",
    "ray_proxy_middlewares",
)

_MODULES = {
    "app.core.assembly.in_process": ("InProcessModel", "as_maite"),
    "app.core.runtimes.onnxruntime.graph_model": ("GraphModel",),
    "app.core.settings.model": ("ModelError",),
    "tasks.image_classification": ("Classification",),
    "tasks.image_segmentation": ("SegmentationParameters", "Segments"),
    "tasks.image_text_to_text": ("Answers", "GenerationParameters"),
    "tasks.inference.error": ("ErrorKind", "InferenceError", "invalid"),
    "tasks.object_detection": ("DetectionParameters", "Detections"),
    "tasks.oriented_object_detection": ("OrientedDetections",),
    "tasks.task": ("TaskType", "TokenUsage"),
    "tasks.text_generation": ("Generation", "TextGenerationParameters"),
    "tasks.token_classification": ("Entities", "TokenParameters"),
    "tasks.vision.filtering": ("SelectionParameters",),
}
"""The public names of each module. Importing `charioteer` imports none of them."""

_PACKAGES = ("app", "metadata", "tasks")
_HOME = next(folder for folder in Path(__file__).resolve().parents if (folder / "app" / "__init__.py").is_file())
"""The folder of our packages: the root of a checkout or of an installation."""

if not TYPE_CHECKING:  # with `__getattr__`, a type checker accepts any name

    def __getattr__(name: str) -> object:
        module = next((module for module, names in _MODULES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_own(module), name)
        globals()[name] = value
        return value


def __dir__() -> Sequence[str]:
    return __all__


def main() -> None:
    """Run the ``charioteer`` command."""
    claim_names()
    importlib.import_module("app.core.cli").main()


def ray_application(arguments: Mapping[str, object]) -> Any:
    """Build the application for ``serve run`` and for the ``import_path`` of a Ray Serve config.

    Args:
        arguments: as ``docs/ray.md`` lists them.

    Returns:
        A ``ray.serve.Application``.

    Raises:
        SettingsError: for unknown or invalid arguments, or without Ray.
        ModelError: if the arguments name no models.
    """
    return import_own("app.plugins.ray.application").application(arguments)


def ray_proxy_middlewares() -> list[Any]:
    """Return the middlewares of Ray Serve's proxy: JSON errors, and 503 when a replica of the ingress is lost."""
    return import_own("app.plugins.ray.proxy").middlewares()


def import_own(name: str) -> Any:
    """Import a module of this distribution, such as ``app.core.assembly.in_process``.

    It has this name if the process has already imported our `app`, otherwise
    ``charioteer.app.core.assembly.in_process``.
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
