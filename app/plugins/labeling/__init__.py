"""The ML backend of Label Studio, and a function for CVAT."""

from app.core.hooks import Page, Plugin, Ref
from app.plugins.labeling.settings import LabelStudioSettings

plugin = Plugin(
    api=2,
    requires=("recording", "evaluation"),
    settings=(LabelStudioSettings,),
    protocols=Ref("app.plugins.labeling.protocols:protocols"),
    page=Page(parts={"request": "labeling.js"}),
    public={"cvat_function": Ref("app.plugins.labeling.cvat:cvat_function")},
)
