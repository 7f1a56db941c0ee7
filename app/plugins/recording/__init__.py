"""Inferences in a database, with queries and exports."""

from app.core.hooks import Command, Plugin

plugin = Plugin(
    api=1,
    name="recording",
    summary="Inferences in a database, with queries and exports.",
    commands=(
        Command(
            name="inferences",
            run="app.plugins.recording.command:inferences",
            help="Search and export recorded inferences.",
        ),
    ),
)
