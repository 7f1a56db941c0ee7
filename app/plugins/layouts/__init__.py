"""Output layouts of DETR, older YOLOs, ranked boxes, faces, pixel maps and PaddleOCR."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    name="layouts",
    summary="Output layouts of DETR, older YOLOs, ranked boxes, faces, pixel maps and PaddleOCR.",
    layouts=Ref("app.plugins.layouts.families:LAYOUTS"),
    extends={"onnx.refusals": Ref("app.plugins.layouts.refusal:EXPLANATIONS")},
)
