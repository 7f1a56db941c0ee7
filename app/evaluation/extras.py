"""The libraries that only evaluations need, imported when the first one is measured."""

import importlib
from typing import Any

__all__ = ("EvaluationError", "needed")


class EvaluationError(Exception):
    """An evaluation that cannot be done, with a sentence for whoever asked for it."""


def needed(module: str) -> Any:
    """The module called `module`. It has no types of its own.

    Raises:
        EvaluationError: when the extra that brings it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise EvaluationError(
            f"charioteer evaluate needs the extra evaluate ({error.name} is missing): pip install charioteer[evaluate]"
        ) from None
