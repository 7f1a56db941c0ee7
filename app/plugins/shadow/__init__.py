"""Shadow versions: a second version of a model answers a share of the requests, unseen by clients."""

from app.core.hooks import Command, ModelSection, Plugin, Ref

plugin = Plugin(
    api=1,
    name="shadow",
    summary="Shadow versions: a second version of a model answers a share of the requests, unseen by clients.",
    requires=("recording", "evaluation"),
    model_settings=(ModelSection(type=Ref("app.plugins.shadow.settings:ShadowSettings"), name="shadow"),),
    commands=(
        Command(
            name="shadow", run="app.plugins.shadow.command:shadow", help="Compare a shadow version with its champion."
        ),
    ),
    start=Ref("app.plugins.shadow.service:start"),
)
