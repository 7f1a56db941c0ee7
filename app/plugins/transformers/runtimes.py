"""The runtimes of models with Hugging Face files: on torch, and vision-language models on ONNX Runtime."""

from app.core.runtimes.runtime import ONNXRUNTIME, ModuleRuntime
from app.plugins.transformers.text.image_text_to_text.files import find_component_graphs
from app.plugins.transformers.torch.files import is_model_folder

TRANSFORMERS = ModuleRuntime("transformers", 20, "app.plugins.transformers.torch.binding", is_model_folder)
VISION_LANGUAGE = ModuleRuntime(
    ONNXRUNTIME.name,
    # Before the runtime of single graphs.
    ONNXRUNTIME.priority + 5,
    "app.plugins.transformers.text.image_text_to_text.assembly",
    lambda source: bool(find_component_graphs(source)),
    ONNXRUNTIME.precisions,
)
RUNTIMES = (VISION_LANGUAGE, TRANSFORMERS)
