"""Hugging Face and timm models on torch, and their export to ONNX."""

from app.core.hooks import Command, ModelSection, Plugin, Ref

plugin = Plugin(
    api=1,
    requires=("hugging_face", "text"),
    commands=(
        Command(
            name="export",
            run="app.plugins.torch.command:export",
            help="Export a transformers model to ONNX, or a classifier for MAITE's tools.",
        ),
    ),
    model_settings=(ModelSection(type=Ref("app.plugins.torch.settings:TransformersSettings"), name="transformers"),),
    runtimes=Ref("app.plugins.torch.runtime:RUNTIMES"),
)
