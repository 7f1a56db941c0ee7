"""The truth of recorded inferences, and which of them to label."""

from app.core.hooks import Plugin, Ref
from app.plugins.feedback.settings import FeedbackSettings

plugin = Plugin(
    api=1,
    name="feedback",
    summary="The truth of recorded inferences, and which of them to label.",
    requires=("recording", "evaluation"),
    settings=(FeedbackSettings,),
    extends={"recording.selector": Ref("app.plugins.feedback.service:SELECTORS")},
    start=Ref("app.plugins.feedback.service:start"),
)
