"""Import torch and transformers when the first model needs them. No other module imports them; both are untyped."""

import importlib
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from app.core.engine.error_text import missing_extra, needs_extra
from app.core.settings.model import ModelError, ModelSource
from tasks.inference.error import invalid


class Framework(msgspec.Struct, frozen=True):
    """The modules torch and transformers."""

    torch: Any
    transformers: Any


@cache
def framework() -> Framework:
    """Return both modules, configured for a server: quiet, offline, and with one thread for each call.

    Raises:
        ModelError: if torch is not installed.
    """
    # Every load passes local_files_only; this covers code paths that ignore it.
    os.environ["HF_HUB_OFFLINE"] = "1"
    with needs_extra("A Hugging Face model", "torch", ModelError):
        torch: Any = importlib.import_module("torch")
    # Requests are the unit of parallelism, as they are for ONNX Runtime.
    torch.set_num_threads(1)
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return Framework(torch, transformers)


def load_part(auto: str, source: ModelSource, part: str, **options: object) -> Any:
    """Load a part of a model, such as its tokenizer, with a class of transformers.

    Raises:
        ModelError: if it cannot be loaded from the files.
    """
    auto_class: Any = getattr(framework().transformers, auto)
    try:
        return auto_class.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:
        raise ModelError(f"{source.folder} has no usable {part}: {first_line(error)}") from error


def locked(process: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Return a processor or tokenizer of transformers for several threads, which returns only the torch tensors.

    Both change their own state, so calls take turns. A call raises INVALID_REQUEST for inputs that they reject, such as
    an image so thin that resizing leaves no pixels.
    """
    lock = threading.Lock()

    def call(*values: object, **options: object) -> dict[str, Any]:
        try:
            with lock:
                processed = process(*values, return_tensors="pt", **options)
        except ValueError as error:
            raise invalid(f"The model's processor rejects the image or the text: {first_line(error)}") from None
        return {name: value for name, value in processed.items() if framework().torch.is_tensor(value)}

    return call


def import_timm() -> None:
    """Import timm, whose models and transforms transformers wraps.

    Raises:
        ModelError: if timm, or torchvision, which it needs, is not installed or does not fit torch.
    """
    framework()
    try:
        importlib.import_module("timm")
    except ImportError as error:
        raise ModelError(missing_extra("A model of timm", "timm", error)) from None
    except Exception as error:
        reason = "install torchvision from the index that torch came from"
        raise ModelError(f"timm cannot be imported: {first_line(error)}; {reason}") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error message, without the advice that follows."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:400]
