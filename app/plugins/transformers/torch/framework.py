"""Import torch and timm when the first model needs them. No other module imports them; both are untyped."""

import importlib
from functools import cache
from typing import Any

from app.core.engine.error_text import missing_extra, needs_extra
from app.core.settings.model import ModelError
from app.plugins.transformers.text.library import first_line


@cache
def load_torch() -> Any:
    """Return torch, with one thread for each call. Raise ModelError if it is not installed."""
    with needs_extra("A Hugging Face model", "torch", ModelError):
        torch: Any = importlib.import_module("torch")
    # Requests are the unit of parallelism, as they are for ONNX Runtime.
    torch.set_num_threads(1)
    return torch


def import_timm() -> None:
    """Import timm, whose models and transforms transformers wraps.

    Raise ModelError if timm, or torchvision, which it needs, is not installed or does not fit torch.
    """
    load_torch()
    try:
        importlib.import_module("timm")
    except ImportError as error:
        raise ModelError(missing_extra("A model of timm", "timm", error)) from None
    except Exception as error:
        reason = "install torchvision from the index that torch came from"
        raise ModelError(f"timm cannot be imported: {first_line(error)}; {reason}") from error
