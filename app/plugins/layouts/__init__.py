"""Output layouts of DETR, older YOLOs, ranked boxes, faces, pixel maps and PaddleOCR, also for Python classes."""

from app.core.hooks import ModelSection, Plugin, Ref

plugin = Plugin(
    api=1,
    model_settings=(ModelSection(type=Ref("app.plugins.layouts.settings:CtcSettings"), name="ctc"),),
    public={"GraphModel": "app.plugins.layouts.graph_model"},
    layouts=Ref("app.plugins.layouts.families:LAYOUTS"),
)
