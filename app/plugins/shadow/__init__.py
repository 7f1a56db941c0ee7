"""Shadow versions: a second version of a model answers a share of the requests, unseen by clients."""

from app.core.hooks import Command, Page, Plugin, Ref, View

plugin = Plugin(
    api=2,
    requires=("recording", "evaluation"),
    model_settings={"shadow": Ref("app.plugins.shadow.settings:ShadowSettings")},
    commands=(
        Command(
            name="shadow",
            run=Ref("app.plugins.shadow.command:shadow"),
            help="Compare a shadow version with its champion.",
            group="Answers",
        ),
    ),
    start=Ref("app.plugins.shadow.start:start"),
    page=Page(
        views=(View(id="shadow", title="Disagreements", order=20, within="recorded"),),
    ),
)
