"""Starter models, checks, archives and manifests of models, drawings, and folders of other servers."""

from typing import Literal

from app.core.hooks import Command, Plugin, Ref

_COMMANDS: tuple[tuple[Literal["Model", "Answers", "Others"], str, str, str], ...] = (
    ("Model", "check", "models", "List the models that `serve` would load."),
    ("Model", "check", "check", "Show how a model is interpreted, and try it once."),
    ("Answers", "predict", "predict", "Run a model on one image, without a server."),
    ("Model", "init", "init", "Create a folder with a starter Python model."),
    ("Model", "pack", "pack", "Check a model and pack its folder into a .tar.gz."),
    ("Others", "pack", "manifest", "Write the SHA-256 of a model's files into its folder."),
)
"""The group, the module, the name and the help of each command; its function has its name."""

plugin = Plugin(
    api=2,
    commands=tuple(
        Command(name=name, run=Ref(f"app.plugins.authoring.{module}:{name}"), help=text, group=group)
        for group, module, name, text in _COMMANDS
    ),
    formats=Ref("app.plugins.authoring.other_formats.other_servers:FORMATS"),
)
