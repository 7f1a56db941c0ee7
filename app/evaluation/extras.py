"""Import the libraries that only evaluations need, when they are first used."""

import importlib
from typing import Any

from app.engine.error_text import missing_extra


class EvaluationError(Exception):
    """An evaluation failed; the message gives the reason to the user."""


def import_optional(module: str) -> Any:
    """Import `module`, which has no type annotations.

    Raises:
        EvaluationError: when its extra is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise EvaluationError(missing_extra("charioteer evaluate", "evaluate", error)) from None
