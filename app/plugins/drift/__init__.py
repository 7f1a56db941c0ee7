"""Detection of drift in inputs and outputs, in recordings and in a running server."""

from app.core.hooks import Command, Page, Plugin, Ref, View
from app.plugins.drift.settings import DriftSettings

plugin = Plugin(
    api=2,
    requires=("recording",),
    extra="drift",
    settings=(DriftSettings,),
    start=Ref("app.plugins.drift.settings:start"),
    commands=(
        Command(
            name="drift",
            run=Ref("app.plugins.drift.command:drift"),
            help="Detect drift in a model's inputs and outputs.",
            group="Answers",
        ),
    ),
    page=Page(
        views=(View(id="drift", title="Drift", order=10, within="recorded"),),
    ),
)
