"""ONNX graphs for Python classes."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="graph_model",
    summary="ONNX graphs for Python classes.",
    requires=("layouts",),
    public={"GraphModel": "app.plugins.graph_model.model"},
)
