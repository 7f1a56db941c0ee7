"""Records and heat maps drawn on images, for commands."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="drawing",
    summary="Records and heat maps drawn on images, for commands.",
)
