"""A checker of any inference server against a protocol."""

from app.core.hooks import Command, Plugin

plugin = Plugin(
    api=1,
    commands=(
        Command(
            name="conform",
            run="app.plugins.conformance.command:conform",
            help="Check any inference server against a protocol.",
        ),
    ),
)
