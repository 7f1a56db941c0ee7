from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import ModelError
from app.plugins.text.generation import Sampler
from app.plugins.text.image_text_to_text.configuration import TextConfiguration
from app.plugins.text.image_text_to_text.graphs import Decoder
from tasks.image_text_to_text import GenerationParameters
from tests.core.runtimes.onnxruntime import graphs

SWITCHED = """
(float[batch, length, 9] inputs_embeds, bool[1] use_cache_branch, int64[] num_logits_to_keep,
         float[batch, heads, past, width] past_key_values_0_key)
     => (float[1, 1, 9] logits, float[batch, heads, all, width] present_0_key)
<int64[1] at = {1}, int64[1] nine = {9}, float[2] off_on = {0.0, 1.0}, int64[3] shape = {1, 1, 9},
 int64[1] three = {3}> {
    branch = Cast<to = 7>(use_cache_branch)
    doubled = Add(branch, branch)
    kept = Add(doubled, num_logits_to_keep)
    token = Add(kept, three)
    row = OneHot(token, nine, off_on)
    logits = Reshape(row, shape)
    first = Constant<value_ints = [0]>()
    two = Constant<value_ints = [2]>()
    narrow = Slice(inputs_embeds, first, two, two)
    new = Unsqueeze(narrow, at)
    present_0_key = Concat<axis = 2>(past_key_values_0_key, new)
}"""
EMBED = """
(int64[batch, length] input_ids) => (float[batch, length, 9] inputs_embeds)
<int64[1] nine = {9}, float[2] off_on = {0.0, 1.0}> {
    inputs_embeds = OneHot(input_ids, nine, off_on)
}"""


def session(path: Path, text: str) -> Session:
    return Session(graphs.parse(path, text))


def decoder(folder: Path, text: str, config: TextConfiguration) -> Decoder:
    return Decoder(session(folder / "embed.onnx", EMBED), session(folder / "decoder.onnx", text), config)


CONFIG = TextConfiguration(hidden_size=8, num_attention_heads=4, num_key_value_heads=1)


def test_use_cache_branch_and_num_logits_to_keep_are_fed_as_tokens_are_read(tmp_path: Path) -> None:
    loaded = decoder(tmp_path, SWITCHED, CONFIG)
    start = np.zeros((1, 4, 9), np.float32)
    tokens = loaded.generate(start, Sampler(GenerationParameters()), end_tokens=(), max_tokens=10**9)
    assert list(islice(tokens, 3)) == [4, 6, 6]


@pytest.mark.parametrize(
    ("old", "new", "error_text"),
    [
        ("past_key_values_0_key)", "past_key_values_0_key, float[1] rope_deltas)", "takes 'rope_deltas', which is not"),
        ("past_key_values_0_key)", "past_key_values_0_key, int64[3, b, l] position_ids)", "position_ids of shape"),
        ("logits", "scores", "gives no logits"),
        ("inputs_embeds", "embeddings", "takes no inputs_embeds"),
        ("present_0_key", "present_1_key", "gives no 'present.0.key'"),
        ("float[batch, heads, past", "float[7, heads, past", "of shape [1, heads, length, width], got [7,"),
    ],
)
def test_graph_with_unexpected_inputs_or_outputs_is_rejected(
    tmp_path: Path, old: str, new: str, error_text: str
) -> None:
    with pytest.raises(ModelError) as caught:
        decoder(tmp_path, SWITCHED.replace(old, new), CONFIG)
    assert error_text in str(caught.value)


def test_cache_of_unknown_size_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="says how many heads"):
        decoder(tmp_path, SWITCHED, TextConfiguration())
