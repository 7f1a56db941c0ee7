"""Bind a model to its task, and test it with one example."""

from typing import TypeVar

import msgspec
import numpy as np

from app.engine.models.servable import Servable
from app.runtimes.transformers.architecture import ModelSpec, read_model_spec
from app.runtimes.transformers.generation import load_text_generator
from app.runtimes.transformers.heads.detection import load_detector
from app.runtimes.transformers.heads.image_classification import load_image_classifier
from app.runtimes.transformers.heads.image_text_to_text import load_vision_language_model
from app.runtimes.transformers.heads.mask_segmentation import load_mask_segmenter
from app.runtimes.transformers.heads.semantic_segmentation import load_semantic_segmenter
from app.runtimes.transformers.heads.text_classification import load_text_classifier
from app.runtimes.transformers.heads.token_classification import load_token_classifier
from app.runtimes.transformers.heads.zero_shot import load_zero_shot_classifier, load_zero_shot_detector
from app.runtimes.transformers.network import Network, load_network
from app.settings.model import ModelError, ModelSource
from tasks.image_classification import ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters
from tasks.image_text_to_text import DEFAULT_PROMPT, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.inference.response import Prediction
from tasks.object_detection import DetectionInput, DetectionParameters, ObjectDetection
from tasks.task import Model, Task
from tasks.text.request import TextItem
from tasks.text_classification import ClassifiedText, TextClassification
from tasks.text_generation import ContinuedText, TextGeneration, TextGenerationParameters
from tasks.token_classification import TaggedText, TokenClassification, TokenParameters
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

__all__ = ("bind",)

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)

_TEXT = TextItem("Hello", "inputs[0].data[0]")
_CANDIDATES = ("a cat", "a dog")


def bind(source: ModelSource) -> Servable:
    """Load a model and test it with one example. Several threads may call the result.

    Raises:
        ModelError: if the model cannot be loaded, or fails on the example.
    """
    spec = read_model_spec(source)
    network = load_network(spec)
    blank = Image(np.zeros((64, 64, 3), np.uint8))
    match spec.kind:
        case "image-classification":
            classified = ClassificationInput(blank, SelectionParameters())
            return _bind(ImageClassification(), load_image_classifier(spec, network), classified, spec, network)
        case "zero-shot-image-classification":
            labelled = ClassificationInput(blank, SelectionParameters(candidate_labels=_CANDIDATES))
            classification = ImageClassification(open_vocabulary=True)
            return _bind(classification, load_zero_shot_classifier(spec, network), labelled, spec, network)
        case "object-detection":
            detected = DetectionInput(blank, DetectionParameters())
            return _bind(ObjectDetection(), load_detector(spec, network), detected, spec, network)
        case "zero-shot-object-detection":
            detected_by_name = DetectionInput(blank, DetectionParameters(candidate_labels=_CANDIDATES))
            detection = ObjectDetection(open_vocabulary=True)
            return _bind(detection, load_zero_shot_detector(spec, network), detected_by_name, spec, network)
        case "semantic-segmentation":
            segmented = SegmentationInput(blank, SegmentationParameters())
            return _bind(ImageSegmentation(), load_semantic_segmenter(spec, network), segmented, spec, network)
        case "mask-segmentation":
            segmented = SegmentationInput(blank, SegmentationParameters())
            return _bind(ImageSegmentation(), load_mask_segmenter(spec, network), segmented, spec, network)
        case "image-text-to-text":
            prompted = PromptedImage(blank, (DEFAULT_PROMPT,), GenerationParameters(max_new_tokens=2))
            return _bind(ImageTextToText(), load_vision_language_model(spec, network), prompted, spec, network)
        case "text-classification":
            text = ClassifiedText(_TEXT, SelectionParameters())
            return _bind(TextClassification(), load_text_classifier(spec, network), text, spec, network)
        case "token-classification":
            tagged = TaggedText(_TEXT, TokenParameters())
            return _bind(TokenClassification(), load_token_classifier(spec, network), tagged, spec, network)
        case "text-generation":
            continued = ContinuedText(_TEXT, TextGenerationParameters(max_new_tokens=2))
            return _bind(TextGeneration(), load_text_generator(spec, network), continued, spec, network)


def _bind(
    task: Task[InputT, PredictionT],
    model: Model[InputT, PredictionT],
    example: InputT,
    spec: ModelSpec,
    network: Network,
) -> Servable:
    source = spec.source
    try:
        model([example])
    except InferenceError as error:
        raise ModelError(f"{source.folder}: the model cannot answer a first request: {error.message}") from None
    except Exception as error:
        raise ModelError(f"{source.folder}: the model cannot answer a first request: {error}") from error
    description = msgspec.structs.replace(spec.description, facts=[*spec.description.facts, *network.facts])
    return Servable(task, model, description, source.settings.parameters)
