"""The server: Chariot's and KServe's protocols, ONNX models and Python classes. Plugins add the rest."""

from app.core.hooks import Command, Plugin, Ref

plugin = Plugin(
    api=2,
    name="core",
    summary="Chariot's and KServe's protocols, ONNX models and Python classes.",
    public={
        "ModelError": Ref("app.core.settings.model:ModelError"),
        "InProcessModel": Ref("app.public_api.in_process:InProcessModel"),
        "Classification": Ref("tasks.image_classification:Classification"),
        "SegmentationParameters": Ref("tasks.image_segmentation:SegmentationParameters"),
        "Segments": Ref("tasks.image_segmentation:Segments"),
        "Answers": Ref("tasks.image_text_to_text:Answers"),
        "GenerationParameters": Ref("tasks.image_text_to_text:GenerationParameters"),
        "ErrorKind": Ref("tasks.inference.error:ErrorKind"),
        "InferenceError": Ref("tasks.inference.error:InferenceError"),
        "invalid": Ref("tasks.inference.error:invalid"),
        "DetectionParameters": Ref("tasks.object_detection:DetectionParameters"),
        "Detections": Ref("tasks.object_detection:Detections"),
        "OrientedDetections": Ref("tasks.oriented_object_detection:OrientedDetections"),
        "TaskType": Ref("tasks.task:TaskType"),
        "TokenUsage": Ref("tasks.task:TokenUsage"),
        "Generation": Ref("tasks.text_generation:Generation"),
        "TextGenerationParameters": Ref("tasks.text_generation:TextGenerationParameters"),
        "SelectionParameters": Ref("tasks.vision.filtering:SelectionParameters"),
    },
    commands=(
        Command(
            name="serve",
            run=Ref("app.core.cli.serve:command"),
            help="Serve models over HTTP and gRPC until stopped.",
            group="Serve",
        ),
        Command(
            name="plugins",
            run=Ref("app.core.cli.plugins:plugins"),
            help="List the plugins that are loaded, or could be.",
        ),
    ),
    runtimes=Ref("app.core.runtimes.runtime:RUNTIMES"),
    layouts=Ref("app.core.runtimes.onnxruntime.layouts.choice:LAYOUTS"),
    protocols=Ref("app.core.protocols:core_protocols"),
)
