"""Import transformers when the first model needs a processor or a tokenizer. It is untyped, and works without torch."""

import importlib
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.settings.model import ModelError, ModelSource
from tasks.inference.error import invalid


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
