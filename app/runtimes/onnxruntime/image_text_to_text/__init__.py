"""Run vision-language models with three graphs, as Optimum and transformers.js export them, without torch.

Models with one pixel array for each image (LLaVA family) and models with tiles (Idefics3, SmolVLM) are supported. Other
models are rejected with an explanation.
"""

import numpy as np

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable
from app.runtimes.onnxruntime.image_text_to_text.assembly import assemble
from app.runtimes.onnxruntime.image_text_to_text.graph_files import find_component_graphs, is_component_graph
from app.settings.model import ModelError, ModelSource
from tasks.image_text_to_text import DEFAULT_PROMPT, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.vision.image import Image

__all__ = ("inspect", "load", "supports")


def supports(source: ModelSource) -> bool:
    """Return whether the folder or its ``onnx`` subfolder has the three graphs, including the named file if any."""
    if source.file is not None and not is_component_graph(source.file):
        return False
    try:
        find_component_graphs(source.folder, source.file)
    except ModelError:
        return False
    return True


def inspect(source: ModelSource) -> ModelMetadata:
    """Describe the model without keeping it loaded.

    Raises:
        ModelError: if the model is incomplete or not supported.
    """
    return assemble(source)[1]


def load(source: ModelSource) -> Servable:
    """Load the model and test it with a blank image. Several threads may call the result.

    Raises:
        ModelError: if the model is incomplete or not supported, or the test fails.
    """
    model, description = assemble(source)
    blank = Image(np.zeros((64, 64, 3), np.uint8))
    try:
        model([PromptedImage((blank,), (DEFAULT_PROMPT,), GenerationParameters(max_new_tokens=2))])
    except InferenceError as error:
        raise ModelError(f"{source.folder}: the model cannot answer about a blank image: {error}") from None
    return Servable(ImageTextToText(), model, description, source.settings.parameters)
