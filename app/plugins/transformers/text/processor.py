"""Load transformers' processors, which prepare images and texts for a model."""

import importlib
from typing import Any

from app.core.settings.model import ModelError, ModelSource, read_json_file
from app.plugins.transformers.text.library import first_line, load_part, transformers
from app.plugins.transformers.text.tokenizer import load_tokenizer

ENCODER_DECODER = "vision-encoder-decoder"
"""The model type of an image encoder with any decoder of text, such as TrOCR and Donut."""

_WITHOUT_VIDEO = {"SmolVLMProcessor": "Idefics3Processor"}
"""Processors that need video packages, and a replacement that treats images in the same way."""


def load_image_processor(source: ModelSource) -> Any:
    """Load a model's image processor, with the NumPy and Pillow backend.

    Raise ModelError if it cannot be loaded from the files.
    """
    return load_part("AutoImageProcessor", source, "image processor in preprocessor_config.json", backend="pil")


def load_processor(source: ModelSource, model_type: str) -> Any:
    """Load transformers' processor of a model.

    Several processors require a video processor, which requires torchvision. Since no protocol accepts videos, these
    processors are assembled without it. Raise ModelError if it cannot be loaded from the files.
    """
    if model_type == ENCODER_DECODER:
        # Not all of these models name a processor, and all processors of this kind are such a pair.
        return transformers().TrOCRProcessor(load_image_processor(source), load_tokenizer(source))
    try:
        processor = transformers().AutoProcessor.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False, backend="pil"
        )
        if hasattr(processor, "tokenizer"):
            return processor
        reason = "transformers does not know its processor_class"
    except Exception as error:  # noqa: BLE001 - missing packages, missing files and bad ones have no common base
        reason = first_line(error)
    try:
        return _assemble(source, model_type)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{source.folder} has no usable processor: {reason}") from error


def _assemble(source: ModelSource, model_type: str) -> Any:
    name = _class_name(source, model_type)
    processor_class: Any = getattr(transformers(), _WITHOUT_VIDEO.get(name, name))

    def check_argument(self: Any, name: str, argument: Any) -> Any:
        return (
            None if name == "video_processor" else processor_class.check_argument_for_proper_class(self, name, argument)
        )

    without_video: Any = type(
        processor_class.__name__, (processor_class,), {"check_argument_for_proper_class": check_argument}
    )
    options, _ = processor_class.get_processor_dict(source.folder, local_files_only=True)
    components = {"image_processor": load_image_processor(source), "tokenizer": load_tokenizer(source)}
    arguments = [components.get(name) for name in processor_class.get_attributes()]
    return without_video.from_args_and_dict(arguments, options)


def _class_name(source: ModelSource, model_type: str) -> str:
    for file in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        path = source.folder / file
        if path.is_file() and (class_name := read_json_file(path, dict[str, object]).get("processor_class")):
            return str(class_name)
    table: Any = importlib.import_module("transformers.models.auto.processing_auto")
    return str(table.PROCESSOR_MAPPING_NAMES[model_type])
