"""Metrics of a model on labelled data."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=1,
    requires=("calibration", "recording"),
    extends={"recording.judge": Ref("app.plugins.evaluation.truths.judging:JUDGES")},
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
