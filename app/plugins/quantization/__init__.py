"""Models that are quantised to int8."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=2,
    requires=("evaluation",),
    commands=(
        Command(
            name="quantize",
            run=Ref("app.plugins.quantization.command:quantize"),
            help="Quantise an ONNX model to int8, as a new version.",
            group="Model",
        ),
    ),
)
