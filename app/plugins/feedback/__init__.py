"""The truth of recorded inferences, and which of them to label."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="feedback",
    summary="The truth of recorded inferences, and which of them to label.",
    requires=("recording", "evaluation"),
)
