"""Output layouts of DETR, ranked boxes, faces and PaddleOCR."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    name="layouts",
    summary="Output layouts of DETR, ranked boxes, faces and PaddleOCR.",
    layouts=Ref("app.plugins.layouts.families:LAYOUTS"),
)
