"""ONNX models on OpenVINO."""

from app.core.hooks import Plugin, Ref
from app.plugins.openvino.settings import OpenVinoOptions

plugin = Plugin(
    api=1,
    name="openvino",
    summary="ONNX models on OpenVINO.",
    extra="openvino",
    model_options=(OpenVinoOptions,),
    runtimes=Ref("app.plugins.openvino.runtime:RUNTIMES"),
)
