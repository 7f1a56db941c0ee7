"""A model on many images, in one command that can be resumed."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=2,
    requires=("evaluation", "recording"),
    extra="parquet",
    commands=(
        Command(
            name="run",
            run=Ref("app.plugins.bulk_run.command:run"),
            help="Run a model on many images, and write its answers as Parquet.",
            group="Answers",
        ),
    ),
    public={"ray_map": Ref("app.plugins.bulk_run.ray_map:ray_map")},
)
