"""Run vision-language models with transformers alone, as the library's documentation of each model does."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import PIL.Image
from numpy.typing import NDArray

from app.core.settings.model import ModelSource
from app.plugins.transformers.text.processor import load_processor
from tests.support.models import tiny_models

WITHOUT_VIDEO = ("smolvlm", "qwen2_vl")
"""Processors that the library builds only with torchvision."""


class LibraryModel:
    """A model and its processor.

    Args:
        folder: where they are saved.
    """

    def __init__(self, folder: Path) -> None:
        t = tiny_models.transformers()
        config = t.AutoConfig.from_pretrained(folder)
        self.type = str(config.model_type)
        self.model_class = getattr(t, config.architectures[0])
        self.model = self.model_class.from_pretrained(folder).eval()
        if self.type in WITHOUT_VIDEO:
            self.processor = load_processor(ModelSource(name="m", version="1", folder=folder), self.type)
        else:
            self.processor = t.AutoProcessor.from_pretrained(folder)
        self.tokenizer = self.processor.tokenizer

    def inputs(self, images: Sequence[NDArray[Any]], prompt: str) -> dict[str, Any]:
        """Return the arguments of `generate` for a question about all images."""
        files: Any = [PIL.Image.fromarray(pixels) for pixels in images]
        files = files if len(files) > 1 else files[0]
        if getattr(self.processor, "chat_template", None):
            content = [*({"type": "image"} for _ in images), {"type": "text", "text": prompt}]
            text = self.processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
            )
            return dict(self.processor(images=files, text=[text], return_tensors="pt"))
        if self.type == "vision-encoder-decoder":
            pixels = self.processor(files, return_tensors="pt").pixel_values
            if type(self.processor).__name__ == "TrOCRProcessor":
                return {"pixel_values": pixels}
            task = f"<s_docvqa><s_question>{prompt}</s_question><s_answer>"
            ids = self.tokenizer(task, add_special_tokens=False, return_tensors="pt").input_ids
            tokens = {f"{name}_token_id": getattr(self.tokenizer, f"{name}_token_id") for name in ("pad", "eos")}
            bad_words = [[self.tokenizer.unk_token_id]]
            return {"pixel_values": pixels, "decoder_input_ids": ids, **tokens, "bad_words_ids": bad_words}
        text = f"<image>{prompt}" if self.type == "paligemma" else prompt
        inputs = dict(self.processor(images=files, text=text, return_tensors="pt"))
        if self.type in ("blip", "git"):
            inputs.pop("token_type_ids", None)
        if self.type == "git":
            # "[CLS] question", without the "[SEP]" that ends a text (documentation of GIT, visual question answering).
            inputs = {key: value[:, :-1] if key != "pixel_values" else value for key, value in inputs.items()}
        return inputs

    def generate(self, inputs: dict[str, Any], max_tokens: int) -> list[int]:
        """Return the whole sequence, which includes the prompt if the model continues it."""
        (sequence,) = self.model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False, num_beams=1)
        return sequence.tolist()

    def text(self, inputs: dict[str, Any], sequence: Sequence[int]) -> str:
        """Return the answer in a sequence."""
        if self.type != "florence2" and "decoder_input_ids" not in inputs:
            prompt = (
                self.tokenizer.decode(inputs["input_ids"][0], skip_special_tokens=True) if "input_ids" in inputs else ""
            )
            return self.tokenizer.decode(sequence, skip_special_tokens=True).removeprefix(prompt)
        text = self.tokenizer.decode(sequence)
        if "decoder_input_ids" in inputs:
            text = text.removeprefix(self.tokenizer.decode(inputs["decoder_input_ids"][0]))
        for token in (self.tokenizer.bos_token, self.tokenizer.eos_token, self.tokenizer.pad_token):
            text = text.replace(token, "")
        return text

    def answer(self, images: Sequence[NDArray[Any]], prompt: str) -> str:
        """Return the answer that a model without a decoder chooses."""
        with tiny_models.torch().no_grad():
            logits = self.model(**self.inputs(images, prompt)).logits
        return self.model.config.id2label[logits.argmax(-1).item()]

    @contextmanager
    def recorded(self) -> Generator[list[list[int]]]:
        """Record the sequences that any model of this class generates."""
        sequences: list[list[int]] = []
        original = self.model_class.generate

        def generate(model: Any, *arguments: Any, **options: Any) -> Any:
            result = original(model, *arguments, **options)
            sequences.extend(result.tolist())
            return result

        with mock.patch.object(self.model_class, "generate", generate):
            yield sequences
