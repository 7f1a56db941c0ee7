"""Hugging Face and timm models on torch, their export, vision-language models in ONNX, and files beside ONNX graphs."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=2,
    commands=(
        Command(
            name="export",
            run=Ref("app.plugins.transformers.torch.command:export"),
            help="Export a transformers model to ONNX, or a classifier for MAITE's tools.",
            group="Model",
        ),
    ),
    model_settings={
        "transformers": Ref("app.plugins.transformers.torch.settings:TransformersSettings"),
        "": Ref("app.plugins.transformers.grounding.forms:VisionLanguageSettings"),
    },
    runtimes=Ref("app.plugins.transformers.runtimes:RUNTIMES"),
    graph_files=Ref("app.plugins.transformers.hugging_face.beside_graph:READERS"),
)
