"""The ML backend of Label Studio, and a function for CVAT."""

from pathlib import Path

from app.core.hooks import Page, Plugin, Ref
from app.plugins.labeling.settings import LabelStudioSettings

plugin = Plugin(
    api=1,
    settings=(LabelStudioSettings,),
    protocols=Ref("app.plugins.labeling.protocols:protocols"),
    extends={"conformance.protocols": Ref("app.plugins.labeling.conformance:PROTOCOLS")},
    page=Page(folder=Path(__file__).parent / "static", parts={"request": "labeling.js"}),
    public={"cvat_function": "app.plugins.labeling.cvat"},
)
