"""Assemble a vision-language model from the files of its folder, and describe it.

Models with one pixel array for each image (LLaVA family) and models with tiles (Idefics3, SmolVLM) are supported. Other
models are rejected with an explanation.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from app.core.engine.models.servable import Servable
from app.core.runtimes.folder import resolve_confined
from app.core.runtimes.onnxruntime.files.hugging_face import Preprocessor, read_json
from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import ModelError, ModelSource, PreprocessingSettings
from app.plugins.text.image_text_to_text.configuration import (
    GenerationConfiguration,
    ModelConfiguration,
    read_tokenizer_configuration,
)
from app.plugins.text.image_text_to_text.files import find_component_graphs
from app.plugins.text.image_text_to_text.graphs import Decoder, VisionEncoder
from app.plugins.text.image_text_to_text.pixels import (
    TILED_FAMILIES,
    TiledImageProcessor,
    Tiles,
    decide_recipe,
    family,
    read_processor_configuration,
    single_image_processor,
)
from app.plugins.text.image_text_to_text.prompting import PlainTemplate, PromptEncoder, load_chat_template
from app.plugins.text.image_text_to_text.vision_language_model import OnnxVisionLanguageModel
from app.plugins.text.tokenizer import Tokenizer, load_tokenizer
from metadata.model import Fact, ModelMetadata, Origin
from tasks.image_text_to_text import DEFAULT_PROMPT, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.inference.tensor import Datatype
from tasks.task import TaskType
from tasks.vision.image import Image

_TILED_TYPES = frozenset({"idefics3", "smolvlm"})
_UNSUPPORTED = frozenset({"paligemma"})
"""Model types with LLaVA's files and processors, but other positions or another order of image and text."""


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


def inspect(source: ModelSource) -> ModelMetadata:
    """Describe the model without keeping it loaded.

    Raises:
        ModelError: as `load`, but for the test.
    """
    return assemble(source)[1]


def assemble(source: ModelSource) -> tuple[OnnxVisionLanguageModel, ModelMetadata]:
    """Load the graphs of a model that has all three (`find_component_graphs`), and read the configuration files.

    Raises:
        ModelError: if a file is missing, cannot be read, or needs an unsupported feature.
    """
    folder = source.folder
    files = find_component_graphs(source)
    path = folder / "config.json"
    config = read_json(ModelConfiguration, path)
    if config is None:
        raise ModelError(f"{path} is missing")
    if config.model_type in _UNSUPPORTED:
        raise ModelError(f"{path} declares model_type {config.model_type}, which is not supported yet")
    if config.image_grid_pinpoints:
        raise ModelError(f"{path} needs images in several resolutions (image_grid_pinpoints), not supported yet")
    processor = read_processor_configuration(folder)
    tiled = config.model_type in _TILED_TYPES or (processor is not None and family(processor[0]) in TILED_FAMILIES)
    prompts, prompt_facts = _read_prompts(folder, config, tiled=tiled)
    resolve = partial(resolve_confined, source=source)
    encoder, embed_tokens, language_model = (Session(file, source.settings.onnxruntime, resolve) for file in files)
    for session in (encoder, embed_tokens, language_model):
        for spec in (*session.inputs, *session.outputs):
            if spec.datatype is Datatype.BF16:
                raise ModelError(f"{session.file}: {spec.name!r} is of datatype {spec.datatype}, not supported yet")
    vision = VisionEncoder(encoder, tiled=tiled)
    decoder = Decoder(embed_tokens, language_model, config.text)
    prepare, pixel_facts = _image_preparation(folder, processor, source.settings.preprocessing, vision, tiled=tiled)
    positions = config.text.max_position_embeddings
    model = OnnxVisionLanguageModel(prepare, vision, prompts, decoder, positions)
    description = ModelMetadata(
        task_type=TaskType.IMAGE_TEXT_TO_TEXT,
        platform="onnx",
        layout="idefics3" if tiled else "llava",
        labels=(),
        inputs=(*encoder.inputs, *embed_tokens.inputs),
        outputs=tuple(spec for spec in language_model.outputs if spec.name == "logits"),
        facts=[
            Fact("graphs", ", ".join(file.relative_to(folder).as_posix() for file in files), Origin.MODEL_FILE),
            Fact("model type", config.model_type or "not stated", Origin.CONFIG),
            Fact("layers with a cache", str(decoder.layers), Origin.MODEL_FILE),
            *pixel_facts,
            *prompt_facts,
            Fact("context", f"{positions} tokens" if positions else "no limit stated", Origin.CONFIG),
        ],
    )
    return model, description


def _image_preparation(
    folder: Path,
    processor: tuple[Preprocessor, Path] | None,
    settings: PreprocessingSettings,
    vision: VisionEncoder,
    *,
    tiled: bool,
) -> tuple[Callable[[Image], Tiles], list[Fact]]:
    if tiled:
        if settings != PreprocessingSettings():
            raise ModelError(
                f"{folder}: preprocessing is declared, but a model that cuts images into tiles does not support it"
            )
        return TiledImageProcessor(processor, folder), [Fact("preprocessing", "cut into tiles", Origin.PREPROCESSOR)]
    recipe, origin = decide_recipe(processor, settings, folder)
    vision.check_size(recipe.height, recipe.width)
    cuts = recipe.resize == "stretch" and recipe.shorter_side != min(recipe.height, recipe.width)
    cuts = cuts or recipe.resize == "crop"
    fit = f"resize to {recipe.shorter_side} and cut out the centre" if cuts else recipe.resize
    fit = f"pad to a square, {fit}" if recipe.pads_to_square else fit
    order = "BGR" if recipe.bgr else "RGB"
    declared = settings != PreprocessingSettings()
    value = f"{recipe.height}x{recipe.width}, {fit}, {order}, scale {recipe.scale:.6g}"
    normalised = f"mean {list(recipe.mean)}, std {list(recipe.std)}"
    return single_image_processor(recipe), [
        Fact("preprocessing", value, Origin.DECLARED if declared else origin),
        Fact("normalisation", normalised, Origin.DECLARED if settings.mean or settings.std else origin),
    ]


def _read_prompts(folder: Path, config: ModelConfiguration, *, tiled: bool) -> tuple[PromptEncoder, list[Fact]]:
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    token_config = read_tokenizer_configuration(folder)
    special = token_config.special_tokens()
    image_id, image_origin = _image_token(tokenizer, config, special, folder)
    image_token = tokenizer.text_of(image_id)
    if image_token is None:
        raise ModelError(
            f"{folder / 'tokenizer.json'} has no token {image_id}, which config.json says stands for the image"
        )
    template, template_name = load_chat_template(folder, token_config) or (PlainTemplate(image_token), None)
    end_tokens, ends_origin = _end_tokens(folder, config, tokenizer, special)
    first_token = special.get("bos_token")
    try:
        prompts = PromptEncoder(tokenizer, template, image_id, end_tokens, first_token, tiled=tiled)
    except ModelError as error:
        if isinstance(template, PlainTemplate):
            raise
        # Some exports have the template of a text model, which expects a message as one string.
        template = msgspec.structs.replace(template, image_token=image_token)
        try:
            prompts = PromptEncoder(tokenizer, template, image_id, end_tokens, first_token, tiled=tiled)
        except ModelError:
            raise error from None
    end_spellings = ", ".join(tokenizer.text_of(id_) or str(id_) for id_ in sorted(end_tokens))
    template_origin = Origin.TOKENIZER if template_name else Origin.GUESSED
    return prompts, [
        Fact("chat template", template_name or f"none: {image_token}, line break, prompt", template_origin),
        Fact("image token", f"{image_token} ({image_id})", image_origin),
        Fact("end of answer", end_spellings or "none: answers end at max_new_tokens", ends_origin),
    ]


def _image_token(
    tokenizer: Tokenizer, config: ModelConfiguration, special: dict[str, str], folder: Path
) -> tuple[int, Origin]:
    id_ = config.image_token_id if config.image_token_id is not None else config.image_token_index
    if id_ is not None:
        return id_, Origin.CONFIG
    token_id = tokenizer.id_of(special.get("image_token", "<image>"))
    if token_id is None:
        raise ModelError(f"{folder / 'config.json'} names no image_token_id, and the tokenizer has no <image> token")
    return token_id, Origin.TOKENIZER


def _end_tokens(
    folder: Path, config: ModelConfiguration, tokenizer: Tokenizer, special: dict[str, str]
) -> tuple[frozenset[int], Origin]:
    generation = read_json(GenerationConfiguration, folder / "generation_config.json")
    for ids in (generation.eos_token_id if generation else None, config.eos_token_id, config.text.eos_token_id):
        if ids is not None:
            return frozenset((ids,) if isinstance(ids, int) else ids), Origin.CONFIG
    token_id = tokenizer.id_of(special.get("eos_token", ""))
    return frozenset(() if token_id is None else (token_id,)), Origin.TOKENIZER
