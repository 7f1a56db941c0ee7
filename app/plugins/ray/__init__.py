"""The service on Ray Serve."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="ray",
    summary="The service on Ray Serve.",
)
