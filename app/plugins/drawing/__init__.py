"""Records and heat maps drawn on images, and the colours of labels."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
)
