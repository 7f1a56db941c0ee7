"""Metrics of a model on labelled data."""

from app.core.hooks import Command, Plugin

plugin = Plugin(
    api=1,
    requires=("recording",),
    commands=(
        Command(
            name="evaluate", run="app.plugins.evaluation.command:evaluate", help="Measure a model on labelled data."
        ),
    ),
)
