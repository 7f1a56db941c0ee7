"""Test models whose processor cuts images into tiles, as that of Idefics3 does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from app.core.settings.model import ModelError
from app.plugins.transformers.text.image_text_to_text.assembly import assemble
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.text.generation import Message, MessagePart
from tasks.vision.image import Image
from tests.core.runtimes.onnxruntime import graphs
from tests.plugins.transformers.text.image_text_to_text import tiny

SPECIAL = [
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
]
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
PER_TILE = 4

VISION = """
(float[batch, tiles, 3, 8, 8] pixel_values, bool[batch, tiles, 8, 8] pixel_attention_mask)
     => (float[tiles, 4, 1] image_features)
<int64[4] flat = {-1, 3, 8, 8}, int64[3] rows = {-1, 4, 1}, int64[1] colour = {2}> {
    mask = Cast<to = 1>(pixel_attention_mask)
    wide = Unsqueeze(mask, colour)
    shown = Mul(pixel_values, wide)
    merged = Reshape(shown, flat)
    pooled = AveragePool<kernel_shape = [4, 4], strides = [4, 4]>(merged)
    grey = ReduceMean<axes = [1], keepdims = 0>(pooled)
    image_features = Reshape(grey, rows)
}"""
EMBED = """
(int64[batch, length] input_ids) => (float[batch, length, 1] inputs_embeds)
<int64[1] last = {2}> {
    number = Cast<to = 1>(input_ids)
    inputs_embeds = Unsqueeze(number, last)
}"""
DECODER = """
(float[batch, length, 1] inputs_embeds, float[batch, 1, past, 1] past_key_values_0_key)
     => (float[batch, length, 1] logits, float[batch, 1, all, 1] present_0_key)
<int64[1] heads_at = {1}> {
    key = Unsqueeze(inputs_embeds, heads_at)
    present_0_key = Concat<axis = 2>(past_key_values_0_key, key)
    logits = Identity(inputs_embeds)
}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer: Any = tokenizers.Tokenizer(
        models.BPE(vocab={token: n for n, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    files: dict[str, object] = {
        "config.json": {"model_type": "idefics3", "image_token_id": tokenizer.token_to_id("<image>")},
        "tokenizer_config.json": {"bos_token": "<|im_start|>", "eos_token": "<end_of_utterance>"},
        "processor_config.json": {"image_seq_len": PER_TILE},
        "preprocessor_config.json": {
            "image_processor_type": "Idefics3ImageProcessor",
            "do_image_splitting": True,
            "size": {"longest_edge": 32},
            "max_image_size": {"longest_edge": 8},
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "resample": 1,
        },
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    for name, text in (("vision_encoder", VISION), ("embed_tokens", EMBED), ("decoder_model_merged", DECODER)):
        graphs.parse(tmp_path / f"{name}.onnx", text)
    return tmp_path


@pytest.mark.parametrize(("splitting", "tiles"), [(True, 3 * 4 + 1), (False, 1)])
def test_every_tile_has_its_tokens_and_features(folder: Path, splitting: bool, tiles: int) -> None:
    tiny.change(folder / "preprocessor_config.json", do_image_splitting=splitting)
    model, description = assemble(tiny.source(folder))
    assert description.layout == "idefics3"
    images = (Image(np.zeros((40, 60, 3), np.uint8)), Image(np.zeros((20, 30, 3), np.uint8)))
    place, text = MessagePart(type="image"), MessagePart(type="text", text="What is it?")
    messages = (Message("user", (place, place, text)),)
    item = PromptedImage(images, ("What is it?",), GenerationParameters(messages=messages, max_new_tokens=1))
    features = tiny.encoded_images(model)
    model([item])
    assert [len(of_images) for of_images in features] == [2 * tiles * PER_TILE]


def test_declared_preprocessing_is_rejected(folder: Path) -> None:
    with pytest.raises(ModelError, match="preprocessing is declared"):
        assemble(tiny.source(folder, preprocessing={"size": [8, 8]}))
