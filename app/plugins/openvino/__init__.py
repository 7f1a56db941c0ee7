"""ONNX models on OpenVINO."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="openvino",
    summary="ONNX models on OpenVINO.",
)
