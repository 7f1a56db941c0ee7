"""Starter models, checks, archives and manifests of models, and one image through a model without a server."""

from app.core.hooks import Command, Plugin

plugin = Plugin(
    api=1,
    requires=("drawing",),
    commands=(
        Command(
            name="models", run="app.plugins.authoring.check:models", help="List the models that `serve` would load."
        ),
        Command(
            name="check",
            run="app.plugins.authoring.check:check",
            help="Show how a model is interpreted, and try it once.",
        ),
        Command(
            name="predict",
            run="app.plugins.authoring.predict:predict",
            help="Run a model on one image, without a server.",
        ),
        Command(
            name="init", run="app.plugins.authoring.init:init", help="Create a folder with a starter Python model."
        ),
        Command(
            name="pack", run="app.plugins.authoring.pack:pack", help="Check a model and pack its folder into a .tar.gz."
        ),
        Command(
            name="manifest",
            run="app.plugins.authoring.pack:manifest",
            help="Write the SHA-256 of a model's files into its folder.",
        ),
    ),
)
