"""Vision-language models of three graphs, as Optimum and transformers.js export them, run without torch.

Supported are models that take one array of pixels for a picture (LLaVA and its kind) and models that take tiles
(Idefics3, SmolVLM). What does not fit is refused with a sentence that says why, rather than answered wrongly.
"""

import numpy as np

from app.engine.description import ModelDescription
from app.engine.servable import BoundServable, Servable
from app.runtimes.onnxruntime.image_text_to_text.assembly import assemble
from app.runtimes.onnxruntime.image_text_to_text.layout import find_graphs, is_piece
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import InferenceError
from tasks.image_text_to_text import DEFAULT_PROMPT, GenerationParameters, ImageTextToText, PromptedImage
from tasks.vision.image import Image

__all__ = ("inspect", "load", "recognises")


def recognises(source: ModelSource) -> bool:
    """Whether the folder, or its ``onnx`` sub-folder, has the three graphs, and the file named, if any, is of them."""
    if source.file is not None and not is_piece(source.file):
        return False
    try:
        find_graphs(source.folder, source.file)
    except ModelError:
        return False
    return True


def inspect(source: ModelSource) -> ModelDescription:
    """Work out what the model is, without keeping it.

    Raises:
        ModelError: with a sentence for the model's owner.
    """
    return assemble(source)[1]


def load(source: ModelSource) -> Servable:
    """Load the model, let it answer about a blank picture once, and be ready to answer from several threads.

    Raises:
        ModelError: with a sentence for the model's owner.
    """
    model, description = assemble(source)
    blank = Image(np.zeros((64, 64, 3), np.uint8))
    try:
        model([PromptedImage(blank, (DEFAULT_PROMPT,), GenerationParameters(max_new_tokens=2))])
    except InferenceError as error:
        raise ModelError(f"{source.folder}: the model cannot answer about a blank image: {error}") from None
    return BoundServable(ImageTextToText(), model, description, source.settings.parameters)
