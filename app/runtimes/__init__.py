"""The ways of running models. A model's files, or its settings, say which one it needs."""

from app.runtimes.onnxruntime import OnnxRuntime
from app.runtimes.runtime import Runtime

__all__ = ("RUNTIMES",)

RUNTIMES: tuple[Runtime, ...] = (OnnxRuntime(),)
