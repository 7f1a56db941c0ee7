"""The ML backend of Label Studio."""

from app.core.hooks import Page, Plugin, Ref
from app.plugins.labeling.settings import LabelStudioSettings

plugin = Plugin(
    api=2,
    requires=("recording", "evaluation"),
    settings=(LabelStudioSettings,),
    protocols=Ref("app.plugins.labeling.settings:protocols"),
    page=Page(parts={"request": "labeling.js"}),
)
