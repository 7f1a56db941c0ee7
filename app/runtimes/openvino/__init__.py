"""OpenVINO: the ONNX files and layouts of `app.runtimes.onnxruntime`, run by another framework."""

from app.runtimes.openvino.runtime import OpenVinoRuntime

__all__ = ("OpenVinoRuntime",)
