"""Compare vision-language models of transformers, as they are served, with the library's own `generate`.

Each tiny model with random weights answers two questions about each photograph, and one about two photographs if it
has a chat template. The table counts the generated tokens, and those that are equal at their position.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from app.core.engine.models.servable import Servable
from tests.plugins.torch.asking import answers, image_input
from tests.support.data.library_answers import LibraryModel
from tests.support.models import tiny_language, tiny_readers

Pixels = NDArray[np.uint8]

MODELS: Sequence[tuple[str, Callable[[Path], Path]]] = (
    ("LLaVA", tiny_language.llava),
    ("Idefics3", tiny_language.idefics3),
    ("SmolVLM", tiny_language.smolvlm),
    ("Qwen2-VL", tiny_language.qwen2_vl),
    ("PaliGemma", tiny_language.paligemma),
    ("BLIP", tiny_language.blip),
    ("BLIP, questions", tiny_language.blip_vqa),
    ("GIT", tiny_language.git),
    ("Florence-2", tiny_readers.florence2),
    ("TrOCR", tiny_readers.trocr),
    ("Donut", tiny_readers.donut),
    ("ViLT", tiny_readers.vilt),
)
PROMPTS = ("what is in the picture?", "who?")
TOKENS = 24


def text_table(folder: Path, images: Sequence[Pixels]) -> Table:
    """Return a row for each model."""
    table = Table("model", "reference", "answers", "tokens", "tokens equal", "texts equal")
    for name, make in MODELS:
        library = LibraryModel(make(folder / f"text {name}"))
        (source,) = model_at(folder / f"text {name}")
        servable = load(source)
        if name == "ViLT":
            pairs = list(_chosen(library, servable, images))
            equal = sum(expected == found for expected, found in pairs)
            table.add_row(name, "logits", str(len(pairs)), "-", "-", str(equal))
            continue
        counts = np.array(list(_generated(library, servable, images)))
        table.add_row(name, "generate", str(len(counts)), *(str(total) for total in counts.sum(axis=0)))
    return table


def _generated(library: LibraryModel, servable: Servable, images: Sequence[Pixels]) -> Iterator[tuple[int, int, int]]:
    """Yield for each answer the number of tokens, of equal ones, and of equal texts."""
    for pixels in images:
        yield from _compared(library, servable, [pixels], PROMPTS, {"prompts": list(PROMPTS)})
    if getattr(library.processor, "chat_template", None):
        content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": PROMPTS[0]}]
        messages = {"messages": [{"role": "user", "content": content}]}
        yield from _compared(library, servable, images[:2], PROMPTS[:1], messages)


def _compared(
    library: LibraryModel,
    servable: Servable,
    images: Sequence[Pixels],
    prompts: Sequence[str],
    parameters: dict[str, Any],
) -> Iterator[tuple[int, int, int]]:
    encoded = [library.inputs(images, prompt) for prompt in prompts]
    expected = [library.generate(dict(inputs), TOKENS) for inputs in encoded]
    texts = [library.text(inputs, sequence) for inputs, sequence in zip(encoded, expected, strict=True)]
    with library.recorded() as found:
        (records,) = answers(servable, image_input(*images, **parameters, max_new_tokens=TOKENS))
    for sequence, other, text, record in zip(expected, found, texts, records, strict=True):
        # Prompts of other lengths would hide equal tokens, and a wrong prompt is a difference, too.
        equal = sum(first == second for first, second in zip(sequence, other, strict=False))
        yield max(len(sequence), len(other)), equal, int(text == record.answer)


def _chosen(library: LibraryModel, servable: Servable, images: Sequence[Pixels]) -> Iterator[tuple[str, str]]:
    for pixels in images:
        (records,) = answers(servable, image_input(pixels, prompts=list(PROMPTS)))
        for prompt, record in zip(PROMPTS, records, strict=True):
            yield library.answer([pixels], prompt), record.answer
