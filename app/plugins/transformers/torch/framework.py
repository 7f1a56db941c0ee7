"""Import torch and timm when the first model needs them. No other module imports them; both are untyped."""

import importlib
from functools import cache
from typing import Any

import msgspec

from app.core.engine.error_text import missing_extra, needs_extra
from app.core.settings.model import ModelError
from app.plugins.transformers.text.library import first_line, transformers


class Framework(msgspec.Struct, frozen=True):
    """The modules torch and transformers."""

    torch: Any
    transformers: Any


@cache
def framework() -> Framework:
    """Return both modules, configured for a server: quiet, offline, and with one thread for each call.

    Raise ModelError if torch is not installed.
    """
    with needs_extra("A Hugging Face model", "torch", ModelError):
        torch: Any = importlib.import_module("torch")
    # Requests are the unit of parallelism, as they are for ONNX Runtime.
    torch.set_num_threads(1)
    return Framework(torch, transformers())


def import_timm() -> None:
    """Import timm, whose models and transforms transformers wraps.

    Raise ModelError if timm, or torchvision, which it needs, is not installed or does not fit torch.
    """
    framework()
    try:
        importlib.import_module("timm")
    except ImportError as error:
        raise ModelError(missing_extra("A model of timm", "timm", error)) from None
    except Exception as error:
        reason = "install torchvision from the index that torch came from"
        raise ModelError(f"timm cannot be imported: {first_line(error)}; {reason}") from error
