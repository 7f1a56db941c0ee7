"""Which parts of an image or text led to a prediction."""

from app.core.hooks import Command, Page, Plugin, Ref, View
from app.plugins.explanations.settings import ExplanationSettings

plugin = Plugin(
    api=2,
    requires=("authoring",),
    settings=(ExplanationSettings,),
    endpoints={"kserve-v1": Ref("app.plugins.explanations.endpoints:endpoints")},
    start=Ref("app.plugins.explanations.request:start"),
    commands=(
        Command(
            name="explain",
            run=Ref("app.plugins.explanations.command:explain"),
            help="Show which parts of an image led to a model's prediction.",
            group="Answers",
        ),
    ),
    page=Page(views=(View(id="explain", title="Explain", order=10, within="try"),)),
)
