"""The server: Chariot's and KServe's protocols, ONNX models and Python classes. Plugins add the rest."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=1,
    name="core",
    summary="Chariot's and KServe's protocols, ONNX models and Python classes.",
    public={
        "ModelError": "app.core.settings.model",
        "InProcessModel": "app.public_api.in_process",
        "Classification": "tasks.image_classification",
        "SegmentationParameters": "tasks.image_segmentation",
        "Segments": "tasks.image_segmentation",
        "Answers": "tasks.image_text_to_text",
        "GenerationParameters": "tasks.image_text_to_text",
        "ErrorKind": "tasks.inference.error",
        "InferenceError": "tasks.inference.error",
        "invalid": "tasks.inference.error",
        "DetectionParameters": "tasks.object_detection",
        "Detections": "tasks.object_detection",
        "OrientedDetections": "tasks.oriented_object_detection",
        "TaskType": "tasks.task",
        "TokenUsage": "tasks.task",
        "Generation": "tasks.text_generation",
        "TextGenerationParameters": "tasks.text_generation",
        "Entities": "tasks.token_classification",
        "TokenParameters": "tasks.token_classification",
        "SelectionParameters": "tasks.vision.filtering",
    },
    commands=(
        Command(name="serve", run="app.core.cli.serve:command", help="Serve models over HTTP and gRPC until stopped."),
        Command(
            name="plugins", run="app.core.cli.plugins:plugins", help="List the plugins that are loaded, or could be."
        ),
    ),
    runtimes=Ref("app.core.runtimes.runtime:RUNTIMES"),
    layouts=Ref("app.core.runtimes.onnxruntime.layouts.families:LAYOUTS"),
    protocols=Ref("app.core.protocols:core_protocols"),
)
