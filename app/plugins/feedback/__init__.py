"""The truth of recorded inferences, and which of them to label."""

from app.core.hooks import Command, Plugin, Ref
from app.plugins.feedback.settings import FeedbackSettings, PickOptions, TruthOptions

plugin = Plugin(
    api=1,
    requires=("recording", "evaluation"),
    settings=(FeedbackSettings,),
    command_options={"evaluate": TruthOptions, "inferences": PickOptions},
    extends={
        "evaluation.truths": Ref("app.plugins.feedback.truths.evaluated:READERS"),
        "labeling.annotations": Ref("app.plugins.feedback.service:ANNOTATIONS"),
        "recording.pick": Ref("app.plugins.feedback.selection.diverse:PICKERS"),
        "recording.selector": Ref("app.plugins.feedback.service:SELECTORS"),
        "shadow.watchers": Ref("app.plugins.feedback.service:WATCHERS"),
    },
    commands=(
        Command(
            name="truth",
            run="app.plugins.feedback.truths.command:truth",
            help="Import labels as the truth of recorded inferences.",
        ),
    ),
    start=Ref("app.plugins.feedback.service:start"),
)
