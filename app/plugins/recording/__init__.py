"""Inferences in a database, with queries and exports."""

from app.core.hooks import Command, Page, Plugin, Ref, View
from app.plugins.recording.settings import RecordingSettings

plugin = Plugin(
    api=2,
    settings=(RecordingSettings,),
    start=Ref("app.plugins.recording.service:start"),
    commands=(
        Command(
            name="inferences",
            run=Ref("app.plugins.recording.command:inferences"),
            help="Search and export recorded inferences.",
            group="Answers",
        ),
    ),
    page=Page(
        views=(
            View(id="recorded", title="Recorded", order=100),
            View(id="inferences", title="Inferences", order=30, within="recorded", observes=True),
        ),
    ),
)
