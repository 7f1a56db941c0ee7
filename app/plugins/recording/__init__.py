"""Inferences in a database, with queries and exports."""

from app.core.hooks import Command, Plugin, Ref
from app.plugins.recording.settings import RecordingSettings

plugin = Plugin(
    api=1,
    name="recording",
    summary="Inferences in a database, with queries and exports.",
    settings=(RecordingSettings,),
    start=Ref("app.plugins.recording.service:start"),
    commands=(
        Command(
            name="inferences",
            run="app.plugins.recording.command:inferences",
            help="Search and export recorded inferences.",
        ),
    ),
)
