"""Which parts of an image or text led to a prediction."""

from app.core.hooks import Command, Plugin

plugin = Plugin(
    api=1,
    name="explanations",
    summary="Which parts of an image or text led to a prediction.",
    commands=(
        Command(
            name="explain",
            run="app.plugins.explanations.command:explain",
            help="Show which parts of an image led to a model's prediction.",
        ),
    ),
)
