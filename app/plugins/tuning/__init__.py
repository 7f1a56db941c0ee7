"""A table of a few settings of a model on this machine, and quantised models."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=2,
    requires=("evaluation",),
    commands=(
        Command(
            name="tune",
            run=Ref("app.plugins.tuning.command:tune"),
            help="Measure a model with a few settings, and write the fastest.",
            group="Model",
        ),
        Command(
            name="quantize",
            run=Ref("app.plugins.tuning.command:quantize"),
            help="Quantise an ONNX model to int8, as a new version.",
            group="Model",
        ),
    ),
)
