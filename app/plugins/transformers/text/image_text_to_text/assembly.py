"""Assemble a vision-language model from the files of its folder, and describe it.

Models with one pixel array for each image (LLaVA family) and models with tiles (Idefics3, SmolVLM) are supported. Other
models are rejected with an explanation.
"""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.engine.models.servable import Servable
from app.core.runtimes.folder import resolve_confined
from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import ModelError, ModelSource, PreprocessingSettings
from app.plugins.transformers.grounding.forms import VisionLanguageSettings, form_of
from app.plugins.transformers.hugging_face.files import read_json
from app.plugins.transformers.text.conversation import Conversation, PromptStyle
from app.plugins.transformers.text.detector import bind_task
from app.plugins.transformers.text.image_text_to_text.deferred import DeferredModel
from app.plugins.transformers.text.image_text_to_text.files import find_component_graphs
from app.plugins.transformers.text.image_text_to_text.graphs import Decoder, TextConfiguration, VisionEncoder
from app.plugins.transformers.text.image_text_to_text.vision_language_model import OnnxVisionLanguageModel
from app.plugins.transformers.text.library import check_configurations, first_line, transformers
from app.plugins.transformers.text.processor import load_processor
from app.plugins.transformers.text.tokenizer import Tokenizer, copy_tokenizer
from metadata.model import Fact, ModelMetadata, Origin
from tasks.image_text_to_text import DEFAULT_PROMPT, GenerationParameters, PromptedImage
from tasks.inference.error import InferenceError
from tasks.task import TaskType
from tasks.vision.image import Image

_TILED = 5
"""Dimensions of pixels that are cut into tiles: (images, tiles, 3, height, width)."""
_UNSUPPORTED = frozenset({"paligemma"})
"""Model types with LLaVA's files and processors, but other positions or another order of image and text."""


class ModelConfiguration(TextConfiguration, frozen=True, kw_only=True):
    """config.json. Older exports have the language model's fields at the top level."""

    model_type: str = ""
    text_config: TextConfiguration | None = None
    vision_config: dict[str, Any] | None = None
    vision_feature_select_strategy: str | None = None
    image_grid_pinpoints: object = None

    @property
    def text(self) -> TextConfiguration:
        """Return the language model's part, nested or at the top level."""
        return self if self.text_config is None else self.text_config


def load(source: ModelSource) -> Servable:
    """Load the model and test it with a blank image, or load it at its first use if its settings say so.

    Several threads may call the result. Raise ModelError if the model is incomplete or not supported, or the test
    fails.
    """
    if not source.settings.of(VisionLanguageSettings).load_at_first_use:
        return _load_now(source)
    if find_spec("transformers") is None:
        transformers()

    def load_and_describe(source: ModelSource) -> OnnxVisionLanguageModel:
        model, servable.description = assemble(source)
        return model

    facts = [Fact("loaded", "at the first request", Origin.DECLARED)]
    form = form_of(source, _configuration(source).model_type, facts)
    task_type = source.settings.task_type or TaskType.IMAGE_TEXT_TO_TEXT
    task, model = bind_task(DeferredModel(source, load_and_describe), form, task_type, facts)
    description = ModelMetadata(
        task_type=task_type,
        platform="onnx",
        layout="vision-language",
        labels=(),
        open_vocabulary=task_type.geometry is not None,
        inputs=(),
        outputs=(),
        facts=facts,
    )
    servable = Servable(task, model, description, source.settings.parameters)
    return servable


def _load_now(source: ModelSource) -> Servable:
    model, description = assemble(source)
    facts = list(description.facts)
    task, task_model = bind_task(model, model.form, description.task_type, facts)
    blank = Image(np.zeros((64, 64, 3), np.uint8))
    try:
        model([PromptedImage((blank,), (DEFAULT_PROMPT,), GenerationParameters(max_new_tokens=2))])
    except InferenceError as error:
        raise ModelError(f"{source.folder}: the model cannot answer about a blank image: {error}") from None
    description = msgspec.structs.replace(description, facts=facts)
    return Servable(task, task_model, description, source.settings.parameters)


def inspect(source: ModelSource) -> ModelMetadata:
    """Describe the model without keeping it loaded. Raise ModelError as `load`, but for the test."""
    return assemble(source)[1]


def assemble(source: ModelSource) -> tuple[OnnxVisionLanguageModel, ModelMetadata]:
    """Load the graphs of a model that has all three (`find_component_graphs`), and read the configuration files.

    Raise ModelError if a file is missing, cannot be read, or needs an unsupported feature.
    """
    folder = source.folder
    files = find_component_graphs(source)
    config = _configuration(source)
    if source.settings.preprocessing != PreprocessingSettings():
        raise ModelError(f"{folder}: preprocessing is declared, but its processor prepares images; change its files")
    check_configurations(folder)
    processor = load_processor(source, config.model_type)
    # Older exports give both in config.json only.
    declared = {
        "patch_size": (config.vision_config or {}).get("patch_size"),
        "vision_feature_select_strategy": config.vision_feature_select_strategy,
    }
    for name, value in declared.items():
        if getattr(processor, name, "") is None:
            setattr(processor, name, value)
    tokenizer = copy_tokenizer(processor.tokenizer, source)
    ends, ends_origin = _end_tokens(folder, config, tokenizer, processor.tokenizer.eos_token)
    resolve = partial(resolve_confined, source=source)
    encoder, embed_tokens, language_model = (Session(file, source.settings.onnxruntime, resolve) for file in files)
    decoder = Decoder(embed_tokens, language_model, config.text)
    try:
        conversation = Conversation(processor, tokenizer, PromptStyle(), ends)
        example = _example(conversation)
    except Exception as error:
        raise ModelError(f"{folder} has no usable processor: {first_line(error)}") from error
    if conversation.image_id is None:
        raise ModelError(f"{folder}: the tokenizer has no token for an image, such as <image>")
    positions = config.text.max_position_embeddings
    vision = VisionEncoder(encoder, example)
    model = OnnxVisionLanguageModel(conversation, tokenizer, ends, vision, decoder, positions)
    facts: list[Fact] = []
    model.form = form_of(source, config.model_type, facts)
    task_type = source.settings.task_type or TaskType.IMAGE_TEXT_TO_TEXT
    image_token = tokenizer.text_of(conversation.image_id)
    description = ModelMetadata(
        task_type=task_type,
        platform="onnx",
        layout="idefics3" if example["pixel_values"].ndim == _TILED else "llava",
        labels=(),
        open_vocabulary=task_type.geometry is not None,
        inputs=(*encoder.inputs, *embed_tokens.inputs),
        outputs=tuple(spec for spec in language_model.outputs if spec.name == "logits"),
        facts=[
            *facts,
            Fact("graphs", ", ".join(file.relative_to(folder).as_posix() for file in files), Origin.MODEL_FILE),
            Fact("model type", config.model_type or "not stated", Origin.CONFIG),
            Fact("layers with a cache", str(decoder.layers), Origin.MODEL_FILE),
            Fact("preprocessing", type(processor.image_processor).__name__, Origin.PREPROCESSOR),
            Fact(
                "chat template",
                "the model's" if conversation.exists else f"none: {image_token}, line break, prompt",
                Origin.TOKENIZER if conversation.exists else Origin.GUESSED,
            ),
            Fact("image token", f"{image_token} ({conversation.image_id})", Origin.PREPROCESSOR),
            Fact(
                "end of answer",
                ", ".join(tokenizer.text_of(id_) or str(id_) for id_ in sorted(ends))
                or "none: answers end at max_new_tokens",
                ends_origin,
            ),
            Fact("context", f"{positions} tokens" if positions else "no limit stated", Origin.CONFIG),
        ],
    )
    return model, description


def _configuration(source: ModelSource) -> ModelConfiguration:
    path = source.folder / "config.json"
    config = read_json(ModelConfiguration, path)
    if config is None:
        raise ModelError(f"{path} is missing")
    if config.model_type in _UNSUPPORTED:
        raise ModelError(f"{path} declares model_type {config.model_type}, which is not supported yet")
    if config.image_grid_pinpoints:
        raise ModelError(f"{path} needs images in several resolutions (image_grid_pinpoints), not supported yet")
    return config


def _example(conversation: Conversation) -> dict[str, NDArray[Any]]:
    """Return what the processor makes of a question about an image that is not square."""
    image = Image(np.zeros((48, 64, 3), np.uint8))
    (text,) = conversation.render_item(PromptedImage((image,), (DEFAULT_PROMPT,), GenerationParameters()))
    return conversation.inputs([image], text, "")


def _end_tokens(
    folder: Path, config: ModelConfiguration, tokenizer: Tokenizer, eos_token: str | None
) -> tuple[frozenset[int], Origin]:
    generation = read_json(TextConfiguration, folder / "generation_config.json")
    for ids in (generation.eos_token_id if generation else None, config.eos_token_id, config.text.eos_token_id):
        if ids is not None:
            return frozenset((ids,) if isinstance(ids, int) else ids), Origin.CONFIG
    token_id = tokenizer.id_of(eos_token or "")
    return frozenset(() if token_id is None else (token_id,)), Origin.TOKENIZER
