"""ONNX models on OpenVINO."""

from app.core.hooks import Plugin, Ref
from app.plugins.openvino.settings import OpenVinoOptions

plugin = Plugin(
    api=2,
    extra="openvino",
    model_options=(OpenVinoOptions,),
    model_settings={"openvino": Ref("app.plugins.openvino.settings:OpenVinoSettings")},
    runtimes=Ref("app.plugins.openvino.runtime:RUNTIMES"),
)
