"""Models of MAITE's tools: ONNX files with JATIC's metadata, MAITE's interface, and objects of supervision."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=2,
    layouts=Ref("app.plugins.jatic.layout:LAYOUTS"),
    public={"as_maite": Ref("app.plugins.jatic.maite:as_maite")},
    python_libraries=Ref("app.plugins.jatic.libraries:LIBRARIES"),
)
