"""ONNX models with the metadata file JATIC_ONNX of MAITE's tools."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    layouts=Ref("app.plugins.jatic.layout:LAYOUTS"),
)
