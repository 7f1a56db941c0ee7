"""The processor of a vision-language model: pictures and text to its inputs."""

import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import PIL.Image

from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.framework import first_line, framework
from app.runtimes.transformers.images import load_image_processor
from app.runtimes.transformers.tokenizing import load_tokenizer
from app.settings.model import ModelError, ModelSource, read_bounded
from tasks.exchange.error import invalid
from tasks.text.unicode import check_unicode
from tasks.vision.image import Image

__all__ = ("Conversation", "load_processor")

_HARMLESS = "What is in the picture?"

_WITHOUT_VIDEO = {"SmolVLMProcessor": "Idefics3Processor"}
"""Processors that do not come up without video packages, and one that does the same to pictures."""

_JOINED = frozenset({"paligemma"})
"""Model types, without a chat template, whose prompt follows the image on the same line."""


class Conversation:
    """Puts a question about a picture as the model was trained to be asked.

    Args:
        processor: transformers' own.
        tokenizer: ours.
        model_type: of the model.
        ends: tokens that end an answer, which a question must not spell.

    Raises:
        ModelError: when the chat template does not take a picture and a question.
    """

    def __init__(self, processor: Any, tokenizer: Tokenizer, model_type: str, ends: frozenset[int]) -> None:
        self._processor = processor
        self._tokenizer = tokenizer
        self._model_type = model_type
        self._turn = threading.Lock()
        self._image_token = str(getattr(processor, "image_token", None) or "")
        self._first_token = getattr(processor.tokenizer, "bos_token", None)
        image_id = tokenizer.id_of(self._image_token)
        self._control_ids = (tokenizer.special_ids - {tokenizer.unknown}) | ends
        self._control_ids |= frozenset() if image_id is None else {image_id}
        self._as_parts = True
        if getattr(processor, "chat_template", None) and not self._takes(_HARMLESS):
            # Some come with the template of a text model, which takes a message as one text.
            self._as_parts = False
            if not self._takes(_HARMLESS):
                raise ModelError("The chat template does not take one picture and one question")
        self._expected = self._controls(self.text(_HARMLESS))

    def text(self, prompt: str) -> str:
        """The conversation as one text, the place of the picture marked."""
        if not getattr(self._processor, "chat_template", None):
            gap = "" if self._model_type in _JOINED or not self._image_token else "\n"
            return f"{self._image_token}{gap}{prompt}"
        content: Sequence[Mapping[str, str]] | str = [{"type": "image"}, {"type": "text", "text": prompt}]
        if not self._as_parts:
            content = f"{self._image_token}\n{prompt}"
        return self._processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )

    def checked(self, prompt: str, path: str) -> str:
        """The same for what a sender asks.

        Raises:
            InferenceError: INVALID_REQUEST for a text without words, one that is not Unicode, one that the template
                refuses, or one that spells a control token.
        """
        if not prompt.strip():
            raise invalid("Expected a question, got an empty text", path)
        check_unicode(prompt, path)
        try:
            text = self.text(prompt)
        except Exception as error:  # noqa: BLE001 - a template raises what it likes
            raise invalid(f"The model's chat template refuses the text: {error}", path) from None
        if self._controls(text) != self._expected:
            raise invalid("Expected a text without the model's control tokens", path)
        return text

    def inputs(self, image: Image, text: str) -> dict[str, Any]:
        """The model's inputs, a batch of one."""
        begun = bool(self._first_token) and text.startswith(str(self._first_token))
        more: dict[str, Any] = {"add_special_tokens": False} if begun else {}
        with self._turn:
            made: Any = self._processor(
                images=[PIL.Image.fromarray(image.pixels)], text=[text], return_tensors="pt", **more
            )
        inputs = {name: value for name, value in made.items() if framework().torch.is_tensor(value)}
        if self._model_type == "git":
            # Behind the token that ends a text, the model would not go on with it.
            inputs = {name: value[:, :-1] if value.ndim == 2 else value for name, value in inputs.items()}
        return inputs

    def _takes(self, prompt: str) -> bool:
        try:
            text = self.text(prompt)
        except Exception:  # noqa: BLE001 - whatever a template raises, it does not take this form
            return False
        # Gemma's templates mark where an image begins, and the processor puts its tokens there.
        marks = [self._image_token, str(getattr(self._processor, "boi_token", None) or "")]
        return prompt in text and (not self._image_token or any(text.count(each) == 1 for each in marks if each))

    def _controls(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, with_special_tokens=False)
        return [each for each in ids if each in self._control_ids]


class _Named(msgspec.Struct, frozen=True):
    processor_class: str | None = None


def load_processor(source: ModelSource, model_type: str) -> Any:
    """Transformers' processor of a model.

    Several processors want a processor of videos beside that of images, which in turn wants torchvision. They are put
    together without one, because nobody sends videos.

    Raises:
        ModelError: when it cannot be made of the files.
    """
    transformers = framework().transformers
    try:
        return transformers.AutoProcessor.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - missing packages, missing files and bad ones have no common base
        reason = first_line(error)
    try:
        return _put_together(source, model_type)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{source.folder} has no processor that can be used: {reason}") from error


def _put_together(source: ModelSource, model_type: str) -> Any:
    transformers = framework().transformers
    name = _class_name(source, model_type)
    kind: Any = getattr(transformers, _WITHOUT_VIDEO.get(name, name))

    def check_argument(self: Any, name: str, argument: Any) -> Any:
        return None if name == "video_processor" else kind.check_argument_for_proper_class(self, name, argument)

    bare: Any = type(kind.__name__, (kind,), {"check_argument_for_proper_class": check_argument})
    told, _ = kind.get_processor_dict(source.folder, local_files_only=True)
    parts = {"image_processor": load_image_processor(source), "tokenizer": load_tokenizer(source)}
    arguments = [parts.get(each) for each in kind.get_attributes()]
    return bare.from_args_and_dict(arguments, told)


def _class_name(source: ModelSource, model_type: str) -> str:
    for file in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        path = source.folder / file
        found = msgspec.json.decode(read_bounded(path), type=_Named).processor_class if path.is_file() else None
        if found:
            return found
    table: Any = importlib.import_module("transformers.models.auto.processing_auto")
    return str(table.PROCESSOR_MAPPING_NAMES[model_type])
