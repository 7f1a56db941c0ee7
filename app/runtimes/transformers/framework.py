"""torch and transformers, imported when the first model needs them. The only module that imports them; both untyped."""

import importlib
import os
import threading
from functools import cache
from typing import Any

import msgspec

from app.settings.model import ModelError

__all__ = ("Framework", "first_line", "framework")

_importing = threading.Lock()


class Framework(msgspec.Struct, frozen=True):
    """The two modules."""

    torch: Any
    transformers: Any


def framework() -> Framework:
    """The two modules, set up for a server: quiet, offline, and with one thread for each call.

    Raises:
        ModelError: when torch is not installed.
    """
    with _importing:
        return _import()


def first_line(error: Exception) -> str:
    """What one of the two says went wrong, without the paragraphs of advice behind it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:400]


@cache
def _import() -> Framework:
    # Every load says local_files_only; this is for what would ask the hub without being told so.
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise ModelError(
            f"This model needs torch, which is not installed here ({error}); install charioteer[torch]"
        ) from None
    # Requests are the unit of parallelism, as they are for ONNX Runtime.
    torch.set_num_threads(1)
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return Framework(torch, transformers)
