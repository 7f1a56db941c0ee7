"""ONNX models on OpenVINO."""

from app.core.hooks import ModelSection, Plugin, Ref
from app.plugins.openvino.settings import OpenVinoOptions

plugin = Plugin(
    api=1,
    extra="openvino",
    model_options=(OpenVinoOptions,),
    model_settings=(ModelSection(type=Ref("app.plugins.openvino.settings:OpenVinoSettings"), name="openvino"),),
    runtimes=Ref("app.plugins.openvino.runtime:RUNTIMES"),
)
