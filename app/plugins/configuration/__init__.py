"""The options of a server, their values, and a JSON Schema of their environment variables."""

from app.core.hooks import Command, Plugin

plugin = Plugin(
    api=1,
    commands=(
        Command(
            name="config",
            run="app.plugins.configuration.command:config",
            help="Show the options of `serve` and where their values come from.",
        ),
        Command(
            name="env-schema",
            run="app.plugins.configuration.command:env_schema",
            help="Print a JSON Schema of environment variables.",
        ),
    ),
)
