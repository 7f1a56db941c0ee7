"""TensorFlow Serving's protocol over HTTP and gRPC, on ports of its own."""

from app.core.hooks import Page, Plugin, Ref
from app.plugins.tensorflow_serving.settings import TensorFlowServingSettings

plugin = Plugin(
    api=2,
    settings=(TensorFlowServingSettings,),
    model_settings={"": Ref("app.plugins.tensorflow_serving.settings:LabelSettings")},
    start=Ref("app.plugins.tensorflow_serving.protocols:start"),
    protocols=Ref("app.plugins.tensorflow_serving.protocols:protocols"),
    page=Page(requests={"tfs": "request_tensorflow_serving.js"}),
)
