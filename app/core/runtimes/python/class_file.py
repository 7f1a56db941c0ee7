"""Read the names in a Python file without running it."""

import ast
from collections.abc import Mapping
from pathlib import Path

from app.core.settings.model import ModelError, read_bounded

_MAX_BYTES = 1024 * 1024


def read_classes(file: Path) -> Mapping[str, set[str]]:
    """Return the methods and attributes that each class of a file defines itself.

    Raise ModelError if the file cannot be read, or is not Python code.
    """
    try:
        module = ast.parse(read_bounded(file, _MAX_BYTES))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"{file} is not Python code: {error}") from None
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    return {node.name: set(map(_defined_name, node.body)) for node in classes}


def _defined_name(statement: ast.stmt) -> str:
    """Return the name that a statement of a class defines; "" if it defines none."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case _:
            return ""
