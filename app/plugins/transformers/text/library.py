"""Import transformers when the first model needs a processor or a tokenizer. It is untyped, and works without torch.

Configuration files are checked before it reads them.
"""

import importlib
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.core.settings.model import ModelError, ModelSource
from app.plugins.transformers.hugging_face.files import read_json
from tasks.inference.error import invalid

_WITH_CODE = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
)
_IMPLEMENTATIONS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")


@cache
def transformers() -> Any:
    """Return the library, configured for a server: quiet and offline. Raise ModelError if it is not installed."""
    # Every load passes local_files_only; this covers code paths that ignore it.
    os.environ["HF_HUB_OFFLINE"] = "1"
    # The library recommends torch, which ONNX models do not need.
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
    try:
        library: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise ModelError(
            f"This model needs transformers, which slim images lack: pip install 'transformers>=5.20,<6' ({error})"
        ) from None
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library


def load_part(auto: str, source: ModelSource, part: str, **options: object) -> Any:
    """Load a part of a model, such as its tokenizer, with a class of transformers.

    Raise ModelError if it cannot be loaded from the files.
    """
    auto_class = getattr(transformers(), auto)
    try:
        return auto_class.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:
        raise ModelError(f"{source.folder} has no usable {part}: {first_line(error)}") from error


def locked(process: Callable[..., Any], tensors: str = "np") -> Callable[..., dict[str, NDArray[Any]]]:
    """Return a processor or tokenizer of transformers for several threads, which returns only the arrays.

    Both change their own state, so calls take turns. A call raises INVALID_REQUEST for inputs that they reject, such as
    an image so thin that resizing leaves no pixels. `tensors` is ``pt`` for those that make tensors of torch only.
    """
    lock = threading.Lock()

    def call(*values: object, **options: object) -> dict[str, NDArray[Any]]:
        try:
            with lock:
                processed = process(*values, return_tensors=tensors, **options)
        except ValueError as error:
            raise invalid(f"The model's processor rejects the image or the text: {first_line(error)}") from None
        return {name: np.asarray(value) for name, value in processed.items() if hasattr(value, "shape")}

    return call


def first_line(error: Exception) -> str:
    """Return the first line of an error message, without the advice that follows."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:400]


def check_configurations(folder: Path) -> None:
    """Reject configurations that refer to code.

    Raise ModelError for Python code of the model or of a hub, and for a file that is not valid JSON.
    """
    for name in _WITH_CODE:
        _check_code(folder / name, read_json(dict[str, object], folder / name))


def _check_code(path: Path, content: object) -> None:
    """Reject references to code anywhere in a configuration, including nested ones."""
    nodes = [content]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            fields = cast("dict[str, object]", node)
            if fields.get("auto_map"):
                raise ModelError(f"{path} refers to Python code of the model (auto_map), which is not run")
            for name in _IMPLEMENTATIONS:
                # A name with a slash is a repository on a hub that contains compiled code.
                if "/" in str(fields.get(name)):
                    raise ModelError(f"{path} refers to code on a hub ({name}), which is not run")
            nodes += fields.values()
        elif isinstance(node, list):
            nodes += cast("list[object]", node)
