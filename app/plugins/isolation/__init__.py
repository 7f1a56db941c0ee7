"""Models in processes of their own."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="isolation",
    summary="Models in processes of their own.",
)
