"""ONNX graphs for Python classes."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    requires=("layouts",),
    public={"GraphModel": "app.plugins.graph_model.model"},
)
