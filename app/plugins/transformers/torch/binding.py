"""Describe a model, or bind it to its task and test it with one example."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from app.plugins.transformers.text.detector import bind_task
from app.plugins.transformers.text.generation import PromptedImageModel
from app.plugins.transformers.torch.architecture import ModelSpec, read_model_spec
from app.plugins.transformers.torch.generation import load_text_generator
from app.plugins.transformers.torch.heads.classification import load_image_classifier, load_zero_shot_classifier
from app.plugins.transformers.torch.heads.detection import load_detector, load_zero_shot_detector
from app.plugins.transformers.torch.heads.image_text_to_text import load_vision_language_model
from app.plugins.transformers.torch.heads.segmentation import load_mask_segmenter, load_semantic_segmenter
from app.plugins.transformers.torch.network import Network, load_network
from metadata.model import ModelMetadata
from tasks.image_classification import ImageClassification
from tasks.image_segmentation import ImageSegmentation
from tasks.image_text_to_text import DEFAULT_PROMPT, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.object_detection import ObjectDetection
from tasks.task import Model, Task
from tasks.text_generation import ContinuedText, TextGeneration
from tasks.vision.image import Image
from tasks.vision.request import ImageItem

_HEADS: Mapping[str, tuple[Task[Any, Any], Callable[[ModelSpec, Network], Model[Any, Any]]]] = {
    "image-classification": (ImageClassification(), load_image_classifier),
    "zero-shot-image-classification": (ImageClassification(open_vocabulary=True), load_zero_shot_classifier),
    "object-detection": (ObjectDetection(), load_detector),
    "zero-shot-object-detection": (ObjectDetection(open_vocabulary=True), load_zero_shot_detector),
    "semantic-segmentation": (ImageSegmentation(), load_semantic_segmenter),
    "mask-segmentation": (ImageSegmentation(), load_mask_segmenter),
    "image-text-to-text": (ImageTextToText(), load_vision_language_model),
    "text-generation": (TextGeneration(), load_text_generator),
}
"""By kind: the task, and the function that returns its model for a network."""


def inspect(source: ModelSource) -> ModelMetadata:
    """Describe the model without reading its weights.

    Raise ModelError if the files are unsafe or incomplete, or the model is not supported.
    """
    return read_model_spec(source).description


def load(source: ModelSource) -> Servable:
    """Load a model and test it with one example. Several threads may call the result.

    Raise ModelError if the model cannot be loaded, or fails on the example.
    """
    spec = read_model_spec(source)
    network = load_network(spec)
    task, load_model = _HEADS[spec.kind]
    model, facts = load_model(spec, network), [*spec.description.facts, *network.facts]
    if isinstance(model, PromptedImageModel):
        task, model = bind_task(model, model.form, spec.description.task_type, facts)
    try:
        model([_example(task, spec)])
    except Exception as error:
        reason = error.message if isinstance(error, InferenceError) else error
        raise ModelError(f"{source.folder}: the model cannot answer a first request: {reason}") from error
    description = msgspec.structs.replace(spec.description, facts=facts)
    return Servable(task, model, description, source.settings.parameters)


def _example(task: Task[Any, Any], spec: ModelSpec) -> object:
    """Return an input of the task that costs little."""
    options: dict[str, object] = {"candidate_labels": ("a cat", "a dog")} if spec.description.open_vocabulary else {}
    if "max_new_tokens" in task.parameters_type.__struct_fields__:
        options["max_new_tokens"] = 2
    parameters: Any = task.parameters_type(**options)
    if task.task_type.takes == "text":
        return ContinuedText("Hello", "inputs[0].data[0]", parameters)
    blank = Image(np.zeros((64, 64, 3), np.uint8))
    if task.task_type.takes == "question":
        return PromptedImage((blank,), (DEFAULT_PROMPT,), parameters)
    return ImageItem(blank, parameters, parameters.score_threshold)
