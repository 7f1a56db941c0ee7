"""A web page to try models and watch the server."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="page",
    summary="A web page to try models and watch the server.",
)
