"""Labels, tasks and preprocessing in the Hugging Face files beside ONNX graphs."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    extends={"onnx.files": Ref("app.plugins.hugging_face.beside_graph:READERS")},
)
