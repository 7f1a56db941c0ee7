"""Output layouts of DETR, older YOLOs, ranked boxes, faces, pixel maps and PaddleOCR, also for Python classes."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=2,
    model_settings={"ctc": Ref("app.plugins.layouts.settings:CtcSettings")},
    public={"GraphModel": Ref("app.plugins.layouts.graph_model:GraphModel")},
    layouts=Ref("app.plugins.layouts.families:LAYOUTS"),
)
