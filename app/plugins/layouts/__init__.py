"""Output layouts of detectors, faces, pixel maps, embeddings and PaddleOCR, also for Python classes."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=2,
    model_settings={
        "ctc": Ref("app.plugins.layouts.settings:CtcSettings"),
        "detections": Ref("app.plugins.layouts.settings:DetectionSettings"),
    },
    public={"GraphModel": Ref("app.plugins.layouts.graph_model:GraphModel")},
    layouts=Ref("app.plugins.layouts.families:LAYOUTS"),
    graph_files=Ref("app.plugins.layouts.exporter_files:READERS"),
)
