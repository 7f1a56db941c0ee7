"""Describe a model, or bind it to its task and test it with one example."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable
from app.runtimes.transformers.architecture import ModelKind, ModelSpec, read_model_spec
from app.runtimes.transformers.generation import load_text_generator
from app.runtimes.transformers.heads.classification import (
    load_image_classifier,
    load_text_classifier,
    load_zero_shot_classifier,
)
from app.runtimes.transformers.heads.detection import load_detector, load_zero_shot_detector
from app.runtimes.transformers.heads.image_text_to_text import load_vision_language_model
from app.runtimes.transformers.heads.segmentation import load_mask_segmenter, load_semantic_segmenter
from app.runtimes.transformers.heads.token_classification import load_token_classifier
from app.runtimes.transformers.network import Network, load_network
from app.settings.model import ModelError, ModelSource
from tasks.image_classification import ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters
from tasks.image_text_to_text import DEFAULT_PROMPT, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.object_detection import DetectionInput, DetectionParameters, ObjectDetection
from tasks.task import Model, Task
from tasks.text.request import TextItem
from tasks.text_classification import ClassifiedText, TextClassification
from tasks.text_generation import ContinuedText, TextGeneration, TextGenerationParameters
from tasks.token_classification import TaggedText, TokenClassification, TokenParameters
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

_TEXT = TextItem("Hello", "inputs[0].data[0]")
_BLANK = Image(np.zeros((64, 64, 3), np.uint8))
_CANDIDATES = ("a cat", "a dog")


class _Head(NamedTuple):
    """A task, the function that returns its model for a network, and an example of its inputs."""

    task: Task[Any, Any]
    load_model: Callable[[ModelSpec, Network], Model[Any, Any]]
    example: object


_HEADS: Mapping[ModelKind, _Head] = {
    "image-classification": _Head(
        ImageClassification(), load_image_classifier, ClassificationInput(_BLANK, SelectionParameters())
    ),
    "zero-shot-image-classification": _Head(
        ImageClassification(open_vocabulary=True),
        load_zero_shot_classifier,
        ClassificationInput(_BLANK, SelectionParameters(candidate_labels=_CANDIDATES)),
    ),
    "object-detection": _Head(ObjectDetection(), load_detector, DetectionInput(_BLANK, DetectionParameters())),
    "zero-shot-object-detection": _Head(
        ObjectDetection(open_vocabulary=True),
        load_zero_shot_detector,
        DetectionInput(_BLANK, DetectionParameters(candidate_labels=_CANDIDATES)),
    ),
    "semantic-segmentation": _Head(
        ImageSegmentation(), load_semantic_segmenter, SegmentationInput(_BLANK, SegmentationParameters())
    ),
    "mask-segmentation": _Head(
        ImageSegmentation(), load_mask_segmenter, SegmentationInput(_BLANK, SegmentationParameters())
    ),
    "image-text-to-text": _Head(
        ImageTextToText(),
        load_vision_language_model,
        PromptedImage((_BLANK,), (DEFAULT_PROMPT,), GenerationParameters(max_new_tokens=2)),
    ),
    "text-classification": _Head(
        TextClassification(), load_text_classifier, ClassifiedText(_TEXT, SelectionParameters())
    ),
    "token-classification": _Head(TokenClassification(), load_token_classifier, TaggedText(_TEXT, TokenParameters())),
    "text-generation": _Head(
        TextGeneration(), load_text_generator, ContinuedText(_TEXT, TextGenerationParameters(max_new_tokens=2))
    ),
}


def inspect(source: ModelSource) -> ModelMetadata:
    """Describe the model without reading its weights.

    Raises:
        ModelError: if the files are unsafe or incomplete, or the model is not supported.
    """
    return read_model_spec(source).description


def load(source: ModelSource) -> Servable:
    """Load a model and test it with one example. Several threads may call the result.

    Raises:
        ModelError: if the model cannot be loaded, or fails on the example.
    """
    spec = read_model_spec(source)
    network = load_network(spec)
    head = _HEADS[spec.kind]
    model = head.load_model(spec, network)
    try:
        model([head.example])
    except Exception as error:
        reason = error.message if isinstance(error, InferenceError) else error
        raise ModelError(f"{source.folder}: the model cannot answer a first request: {reason}") from error
    description = msgspec.structs.replace(spec.description, facts=[*spec.description.facts, *network.facts])
    return Servable(head.task, model, description, source.settings.parameters)
