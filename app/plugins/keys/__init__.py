"""Create, list and remove API keys."""

from app.core.hooks import Command, Plugin

plugin = Plugin(
    api=1,
    commands=(Command(name="keys", run="app.plugins.keys.command:keys", help="Create, list and remove API keys."),),
)
