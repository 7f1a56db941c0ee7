"""ONNX models on OpenVINO."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    name="openvino",
    summary="ONNX models on OpenVINO.",
    extra="openvino",
    runtimes=Ref("app.plugins.openvino.runtime:RUNTIMES"),
)
