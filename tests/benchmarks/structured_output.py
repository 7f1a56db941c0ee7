"""Print what a JSON Schema costs: CPU and tokens a second of the demo's vision-language model, with and without one.

Both answers are the same JSON, asked for in turns. A mask for each token costs more with a larger vocabulary, so that
the last row masks scores of 150,000 tokens. Usage: ``python -m tests.benchmarks.structured_output`` (seconds).
"""

import statistics
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models, pre_tokenizers

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from app.plugins.transformers.runtimes import VISION_LANGUAGE
from app.plugins.transformers.text.constraint import Grammars
from app.plugins.transformers.text.tokenizer import Tokenizer
from tasks.text.generation import SamplingParameters
from tests.support.data.requests import file_input, predict
from tests.support.servers.server_process import ROOT

IMAGE = ROOT / "fixtures" / "images" / "shape.jpg"
SCHEMA = {
    "type": "object",
    "properties": {"color": {"type": "string"}, "shape": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["color", "shape", "count"],
    "additionalProperties": False,
}
TURNS = 60
VOCABULARY = 150_000


def cost(model: Servable, **parameters: Any) -> tuple[float, int, str]:
    """Return the CPU seconds of an answer, its tokens, and its text."""
    asked = file_input(IMAGE.read_bytes(), prompts=["Describe the picture as JSON."], **parameters)
    start = time.process_time()
    (prediction,) = predict(model, asked)
    seconds = time.process_time() - start
    (chunk,) = prediction.chunks()
    assert chunk.usage is not None
    return seconds, chunk.usage.completion, chunk.text


def mask_cost() -> float:
    """Return the CPU milliseconds of one token's mask over the scores of `VOCABULARY` tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = (first + second + third for first in alphabet for second in alphabet for third in alphabet)
    tokens = ["<end>", *alphabet, *islice(words, VOCABULARY - len(alphabet) - 1)]
    inner = LibraryTokenizer(models.BPE({token: id_ for id_, token in enumerate(tokens)}, [], ignore_merges=True))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<end>"])
    tokenizer = Tokenizer(inner, None)
    constraint = Grammars(tokenizer, frozenset({0})).constraint(SamplingParameters(json_schema=SCHEMA))
    assert constraint is not None
    ids = [inner.token_to_id("Ġ" if letter == " " else letter) for letter in '{"color": "blue", "shape": "star"']
    scores = np.zeros(VOCABULARY, np.float32)
    start = time.process_time()
    for id_ in ids:
        assert np.isfinite(constraint.mask(scores)[id_])
        constraint.accept(id_)
    return (time.process_time() - start) / len(ids) * 1000


def main() -> None:
    """Print the table."""
    model = VISION_LANGUAGE.load(ModelSource(name="vlm", version="1", folder=ROOT / "fixtures" / "models" / "vlm"))
    ways: Mapping[str, Mapping[str, Any]] = {"without a schema": {}, "with a schema": {"json_schema": SCHEMA}}
    texts = {way: cost(model, **parameters)[2] for way, parameters in ways.items()}
    assert len({*texts.values()}) == 1, texts
    runs = [{way: cost(model, **parameters) for way, parameters in ways.items()} for _ in range(TURNS)]
    table = Table("answer", "tokens", "CPU ms", "tokens a second of CPU", title=f"{TURNS} answers each, in turns")
    for way in ways:
        seconds, tokens = statistics.median(run[way][0] for run in runs), runs[0][way][1]
        table.add_row(way, str(tokens), f"{seconds * 1000:.1f}", f"{tokens / seconds:.0f}")
    console = Console(width=110)
    console.print(table)
    console.print(f"One token's mask over {VOCABULARY:,} scores: {mask_cost():.2f} ms of CPU")


if __name__ == "__main__":
    main()
