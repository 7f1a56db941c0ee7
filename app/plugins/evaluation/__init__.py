"""Metrics of a model on labelled data."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=1,
    requires=("calibration", "recording"),
    start=Ref("app.plugins.evaluation.truths.start:start"),
    commands=(
        Command(
            name="evaluate", run="app.plugins.evaluation.command:evaluate", help="Measure a model on labelled data."
        ),
        Command(
            name="truth",
            run="app.plugins.evaluation.truths.command:truth",
            help="Import labels as the truth of recorded inferences.",
        ),
    ),
)
