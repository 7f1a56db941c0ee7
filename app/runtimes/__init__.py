"""Run models. A model's files or its settings determine its runtime."""

from app.runtimes.onnxruntime import OnnxRuntime
from app.runtimes.openvino import OpenVinoRuntime
from app.runtimes.python import PythonRuntime
from app.runtimes.runtime import Runtime
from app.runtimes.transformers import TransformersRuntime

__all__ = ("RUNTIMES",)

RUNTIMES: tuple[Runtime, ...] = (PythonRuntime(), OnnxRuntime(), OpenVinoRuntime(), TransformersRuntime())
