"""Hugging Face and timm models on torch, and their export to ONNX."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=1,
    name="torch",
    summary="Hugging Face and timm models on torch, and their export to ONNX.",
    requires=("text",),
    commands=(
        Command(
            name="export",
            run="app.plugins.torch.command:export",
            help="Export a transformers model to ONNX and compare both.",
        ),
    ),
    runtimes=Ref("app.plugins.torch.runtime:RUNTIMES"),
)
