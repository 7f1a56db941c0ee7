"""ONNX models with the metadata file JATIC_ONNX of MAITE's tools."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    requires=("in_process",),
    layouts=Ref("app.plugins.jatic.layout:LAYOUTS"),
    extends={"torch.export_formats": Ref("app.plugins.jatic.export:EXPORT_FORMATS")},
)
