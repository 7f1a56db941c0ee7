"""Metrics of a model on labelled data."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=2,
    requires=("calibration", "recording"),
    start=Ref("app.plugins.evaluation.truths.start:start"),
    commands=(
        Command(
            name="evaluate",
            run=Ref("app.plugins.evaluation.command:evaluate"),
            help="Measure a model on labelled data.",
            group="Answers",
        ),
        Command(
            name="truth",
            run=Ref("app.plugins.evaluation.truths.command:truth"),
            help="Import labels as the truth of recorded inferences.",
            group="Answers",
        ),
    ),
)
