"""A checker of any inference server against a protocol."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=2,
    commands=(
        Command(
            name="conform",
            run=Ref("app.plugins.conformance.command:conform"),
            help="Check any inference server against a protocol.",
            group="Serve",
        ),
    ),
)
