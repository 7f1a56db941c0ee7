"""The runtime of vision-language models in ONNX, before core's for single graphs."""

from app.core.runtimes.runtime import ONNXRUNTIME, ModuleRuntime
from app.plugins.text.image_text_to_text.files import find_component_graphs

VISION_LANGUAGE = ModuleRuntime(
    ONNXRUNTIME.name,
    ONNXRUNTIME.priority + 5,
    "app.plugins.text.image_text_to_text.assembly",
    lambda source: bool(find_component_graphs(source)),
    ONNXRUNTIME.precisions,
)
RUNTIMES = (VISION_LANGUAGE,)
