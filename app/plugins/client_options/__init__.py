"""Headers and TLS files of commands that send requests."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
)
