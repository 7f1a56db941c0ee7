"""Test errors in a model folder, reported in one line that names the file, and what is fed to graphs of decoders."""

import importlib
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import ModelError
from app.plugins.transformers.text.generation import Sampler
from app.plugins.transformers.text.image_text_to_text.assembly import assemble, load
from app.plugins.transformers.text.image_text_to_text.graphs import Decoder, TextConfiguration
from tasks.image_text_to_text import GenerationParameters
from tests.core.runtimes.onnxruntime import graphs
from tests.plugins.transformers.text.image_text_to_text import tiny


def load_error(folder: Path, **settings: object) -> str:
    messages: set[str] = set()
    for operation in (assemble, load):
        with pytest.raises(ModelError) as caught:
            operation(tiny.source(folder, **settings))
        messages.add(str(caught.value))
    [message] = messages
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "preprocessor_config.json"])
def test_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert name in load_error(folder)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b"3"])
@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "preprocessor_config.json", "tokenizer_config.json"]
)
def test_invalid_json_file_is_named(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert name in load_error(folder)


@pytest.mark.parametrize("name", ["vision_encoder.onnx", "decoder_model_merged.onnx"])
def test_invalid_graph_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"not a graph")
    assert name in load_error(folder)


def test_swapped_graphs_are_rejected(folder: Path) -> None:
    (folder / "vision_encoder.onnx").replace(folder / "other")
    (folder / "decoder_model_merged.onnx").replace(folder / "vision_encoder.onnx")
    (folder / "other").replace(folder / "decoder_model_merged.onnx")
    assert "decoder_model_merged.onnx takes no inputs_embeds" in load_error(folder)


@pytest.mark.parametrize(
    ("file", "change", "error_text"),
    [
        ("config.json", {"model_type": "paligemma"}, "model_type paligemma, which is not supported yet"),
        ("config.json", {"image_grid_pinpoints": [[336, 672]]}, "several resolutions"),
        ("config.json", {"auto_map": {"AutoModel": "evil.Model"}}, "refers to Python code"),
        ("preprocessor_config.json", {"image_processor_type": "Unheard"}, "no usable"),
        ("preprocessor_config.json", {"size": {"height": 8, "width": 8}}, "takes images of [-1, 3, 4, 4], but"),
        ("preprocessor_config.json", {"size": {"shortest_edge": 4}}, "preprocessing makes [1, 3, 4, 5]"),
        ("preprocessor_config.json", {"resample": 9}, "no usable processor"),
        ("processor_config.json", {"patch_size": None}, "no usable processor"),
        ("processor_config.json", {"image_token": "<pictures>"}, "no usable processor"),
    ],
)
def test_unsupported_settings_are_rejected(folder: Path, file: str, change: dict[str, object], error_text: str) -> None:
    tiny.change(folder / file, **change)
    assert error_text in load_error(folder)


def test_patch_size_of_the_model_is_used_without_one_of_the_processor(folder: Path) -> None:
    tiny.change(folder / "processor_config.json", patch_size=None, vision_feature_select_strategy=None)
    tiny.change(folder / "config.json", vision_config={"patch_size": 2}, vision_feature_select_strategy="full")
    assert load(tiny.source(folder)).description.layout == "llava"


def test_processor_of_other_patches_is_rejected(folder: Path) -> None:
    tiny.change(folder / "processor_config.json", patch_size=4)
    with pytest.raises(ModelError, match="4 image features do not fit the 1 image tokens"):
        load(tiny.source(folder))


def test_image_features_of_another_width_than_embeddings_are_rejected(folder: Path) -> None:
    onnx: Any = importlib.import_module("onnx")
    model = onnx.load(folder / "vision_encoder.onnx")
    (padding,) = (tensor for tensor in model.graph.initializer if tensor.name == "before")
    padding.int64_data[-1] -= 3
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value -= 3
    onnx.save(model, folder / "vision_encoder.onnx")
    with pytest.raises(ModelError, match=r"blank image: .* its image features are 28 values wide, embeddings 31"):
        load(tiny.source(folder))


def test_infinite_and_null_values_in_json_are_accepted(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "limit": float("inf"), "text_config": None}))
    assert load(tiny.source(folder)).description.layout == "llava"


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
    tokens = loaded.generate(start, Sampler(GenerationParameters()), max_tokens=10**9)
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
def test_graph_with_other_inputs_or_outputs_is_rejected(tmp_path: Path, old: str, new: str, error_text: str) -> None:
    with pytest.raises(ModelError) as caught:
        decoder(tmp_path, SWITCHED.replace(old, new), CONFIG)
    assert error_text in str(caught.value)


def test_cache_of_unknown_size_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="says how many heads"):
        decoder(tmp_path, SWITCHED, TextConfiguration())
