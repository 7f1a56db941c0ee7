"""Output layouts of DETR, ranked boxes, faces and PaddleOCR."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="layouts",
    summary="Output layouts of DETR, ranked boxes, faces and PaddleOCR.",
)
