"""Convert an image and a prompt to the inputs of a vision-language model."""

import importlib
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import PIL.Image

from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.framework import first_line, framework
from app.runtimes.transformers.images import load_image_processor
from app.runtimes.transformers.tokenizing import load_tokenizer
from app.settings.model import ModelError, ModelSource, read_bounded
from tasks.inference.error import invalid
from tasks.text.conversation import Message, question, reject_conversation, template_message, with_texts
from tasks.text.unicode import check_unicode
from tasks.vision.image import Image

__all__ = ("Conversation", "load_processor")

_PROBE = "What is in the image?"

_WITHOUT_VIDEO = {"SmolVLMProcessor": "Idefics3Processor"}
"""Processors that need video packages, and a replacement that treats images in the same way."""

_JOINED = frozenset({"paligemma"})
"""Model types without a chat template whose prompt follows the image on the same line."""


class Conversation:
    """Formats an image and a prompt with the model's chat template.

    Args:
        processor: transformers' processor.
        tokenizer: our tokenizer.
        model_type: type of the model.
        end_tokens: tokens that end an answer, which a prompt must not contain.

    Raises:
        ModelError: if the chat template does not accept one image and one prompt.
    """

    def __init__(self, processor: Any, tokenizer: Tokenizer, model_type: str, end_tokens: frozenset[int]) -> None:
        self._processor = processor
        self._tokenizer = tokenizer
        self._model_type = model_type
        self._lock = threading.Lock()
        self._image_token = str(getattr(processor, "image_token", None) or "")
        self._first_token = getattr(processor.tokenizer, "bos_token", None)
        image_id = tokenizer.id_of(self._image_token)
        self._control_ids = (tokenizer.special_ids - {tokenizer.unknown}) | end_tokens
        self._control_ids |= frozenset() if image_id is None else {image_id}
        self._uses_parts = True
        if getattr(processor, "chat_template", None) and not self._accepts(_PROBE):
            # Some models have the template of a text model, which expects a message as one string.
            self._uses_parts = False
            if not self._accepts(_PROBE):
                raise ModelError("The chat template does not accept one image and one question")
        self._expected = self._control_tokens(self.render([question(_PROBE)]))

    def render(self, messages: Sequence[Message]) -> str:
        """Return the conversation as one text that marks the positions of the images."""
        if not getattr(self._processor, "chat_template", None):
            separator = "" if self._model_type in _JOINED or not self._image_token else "\n"
            return f"{self._image_token}{separator}{messages[0].text}"
        image_token = None if self._uses_parts else self._image_token
        rendered = [template_message(message, image_token) for message in messages]
        return self._processor.apply_chat_template(rendered, add_generation_prompt=True, tokenize=False)

    def render_messages(self, messages: Sequence[Message], path: str) -> str:
        """Validate the messages of a client, and return the conversation as one text; errors as `render_checked`."""
        if not getattr(self._processor, "chat_template", None):
            reject_conversation(messages, path)
        harmless = [with_texts(message, _PROBE) for message in messages]
        return self._render(messages, self._control_tokens(self._try_render(harmless, path)), path)

    def render_checked(self, prompt: str, path: str) -> str:
        """Validate the prompt of a client, and return the conversation as one text.

        Raises:
            InferenceError: INVALID_REQUEST for an empty or invalid Unicode text, one that the template rejects, or one
                that contains a control token.
        """
        if not prompt.strip():
            raise invalid("Expected a question, got an empty text", path)
        return self._render([question(prompt)], self._expected, path)

    def _render(self, messages: Sequence[Message], expected: Sequence[int], path: str) -> str:
        for message in messages:
            check_unicode(message.text, path)
        text = self._try_render(messages, path)
        if self._control_tokens(text) != expected:
            raise invalid("Expected a text without the model's control tokens", path)
        return text

    def _try_render(self, messages: Sequence[Message], path: str) -> str:
        try:
            return self.render(messages)
        except Exception as error:  # noqa: BLE001 - a template may raise any type
            raise invalid(f"The model's chat template rejects the text: {error}", path) from None

    def inputs(self, images: Sequence[Image], text: str) -> dict[str, Any]:
        """Return the model's inputs, as a batch of one."""
        has_first_token = bool(self._first_token) and text.startswith(str(self._first_token))
        options: dict[str, Any] = {"add_special_tokens": False} if has_first_token else {}
        with self._lock:
            processed: Any = self._processor(
                images=[PIL.Image.fromarray(image.pixels) for image in images],
                text=[text],
                return_tensors="pt",
                **options,
            )
        inputs = {name: value for name, value in processed.items() if framework().torch.is_tensor(value)}
        if self._model_type == "git":
            # The model does not continue a text after its end token.
            inputs = {name: value[:, :-1] if value.ndim == 2 else value for name, value in inputs.items()}
        return inputs

    def _accepts(self, prompt: str) -> bool:
        try:
            text = self.render([question(prompt)])
        except Exception:  # noqa: BLE001 - any error means that the template does not accept this form
            return False
        # Gemma's templates mark the start of an image, and the processor inserts the image tokens there.
        marks = [self._image_token, str(getattr(self._processor, "boi_token", None) or "")]
        return prompt in text and (not self._image_token or any(text.count(mark) == 1 for mark in marks if mark))

    def _control_tokens(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, with_special_tokens=False)
        return [id_ for id_ in ids if id_ in self._control_ids]


class _ProcessorName(msgspec.Struct, frozen=True):
    processor_class: str | None = None


def load_processor(source: ModelSource, model_type: str) -> Any:
    """Load transformers' processor of a model.

    Several processors require a video processor, which requires torchvision. Since no protocol accepts videos, these
    processors are assembled without it.

    Raises:
        ModelError: if it cannot be loaded from the files.
    """
    transformers = framework().transformers
    try:
        return transformers.AutoProcessor.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - missing packages, missing files and bad ones have no common base
        reason = first_line(error)
    try:
        return _assemble(source, model_type)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{source.folder} has no usable processor: {reason}") from error


def _assemble(source: ModelSource, model_type: str) -> Any:
    transformers = framework().transformers
    name = _class_name(source, model_type)
    processor_class: Any = getattr(transformers, _WITHOUT_VIDEO.get(name, name))

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
        class_name = (
            msgspec.json.decode(read_bounded(path), type=_ProcessorName).processor_class if path.is_file() else None
        )
        if class_name:
            return class_name
    table: Any = importlib.import_module("transformers.models.auto.processing_auto")
    return str(table.PROCESSOR_MAPPING_NAMES[model_type])
