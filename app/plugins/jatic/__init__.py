"""Models of MAITE's tools: ONNX files with JATIC's metadata, MAITE's interface, and objects of supervision."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    layouts=Ref("app.plugins.jatic.layout:LAYOUTS"),
    public={"as_maite": "app.plugins.jatic.maite.models"},
    python_libraries=Ref("app.plugins.jatic.libraries:LIBRARIES"),
)
