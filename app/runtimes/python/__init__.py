"""Python: models that are a class of the user's own, run in threads of their own, where the operator allows it."""

from app.runtimes.python.runtime import PythonRuntime

__all__ = ("PythonRuntime",)
