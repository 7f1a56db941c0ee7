"""Write a vision-language model small enough to compute by hand.

Token `t` is embedded as the t-th unit vector. The decoder sums value(p) + value(p) * (p + 1) over the positions p,
counted from 0, and adds the length of the attention mask. The next token is this sum modulo the vocabulary size.
value(p) is the number of the token, or the image feature in its place. The key cache holds the first summand, the
value cache the second. A wrong cache, position, mask length or feature therefore gives another token.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, pre_tokenizers

from app.core.plugins import registry
from app.core.settings.model import ModelSource
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.vision.image import Image
from tests.core.runtimes.onnxruntime import graphs

SPECIAL = ("<pad>", "<unk>", "<image>", "<end>", "<begin>")
WORDS = ("user:", "assistant:", "what", "is", "this", "a", "red", "green", "blue", "square", "circle", "one", "two")
VOCABULARY = (*SPECIAL, *WORDS, *(f"w{number}" for number in range(31 - len(SPECIAL) - len(WORDS))))
SIZE = len(VOCABULARY)
IMAGE, END = VOCABULARY.index("<image>"), VOCABULARY.index("<end>")
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image> ' }}"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ ' assistant:' }}{% endif %}"
)

VISION = """
(float[batch, 3, 4, 4] pixel_values) => (float[batch, 4, WIDTH] image_features)
<int64[2] flat = {1, -1}, int64[1] at_last = {2}, int64[6] before = {0, 0, 1, 0, 0, REST}> {
    pooled = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(pixel_values)
    grey = ReduceMean<axes = [1], keepdims = 0>(pooled)
    row = Reshape(grey, flat)
    column = Unsqueeze(row, at_last)
    image_features = Pad(column, before)
}"""

DECODER = """
(FLOAT[batch, length, WIDTH] inputs_embeds, int64[batch, total] attention_mask,
         int64[batch, length] position_ids,
         FLOAT[batch, 1, past, 1] past_key_values_0_key, FLOAT[batch, 1, past, 1] past_key_values_0_value)
     => (FLOAT[batch, length, WIDTH] logits,
         FLOAT[batch, 1, all, 1] present_0_key, FLOAT[batch, 1, all, 1] present_0_value)
<int64[1] heads_at = {1}, int64[1] last_at = {2}, float[1] one = {1.0}, float[1] modulus = {WIDTH.0}> {
    embeds = Cast<to = 1>(inputs_embeds)
    past_keys = Cast<to = 1>(past_key_values_0_key)
    past_values = Cast<to = 1>(past_key_values_0_value)
    number = MatMul(embeds, numbers_column)
    key = Unsqueeze(number, heads_at)
    position = Cast<to = 1>(position_ids)
    counted = Add(position, one)
    factor_row = Unsqueeze(counted, heads_at)
    last_but_one = Constant<value_ints = [-1]>()
    factor = Unsqueeze(factor_row, last_but_one)
    value = Mul(key, factor)
    keys = Concat<axis = 2>(past_keys, key)
    values = Concat<axis = 2>(past_values, value)
    key_sum = ReduceSum<keepdims = 0>(keys)
    value_sum = ReduceSum<keepdims = 0>(values)
    mask = Cast<to = 1>(attention_mask)
    mask_sum = ReduceSum<keepdims = 0>(mask)
    some = Add(key_sum, value_sum)
    sum = Add(some, mask_sum)
    next = Mod<fmod = 1>(sum, modulus)
    distance = Sub(numbers, next)
    far = Abs(distance)
    score = Neg(far)
    newest = ReduceMax<keepdims = 1>(position)
    is_newest = Equal(position, newest)
    gate_row = Cast<to = 1>(is_newest)
    gate = Unsqueeze(gate_row, last_at)
    shown = Mul(gate, score)
    logits = Cast<to = ELEMENT>(shown)
    present_0_key = Cast<to = ELEMENT>(keys)
    present_0_value = Cast<to = ELEMENT>(values)
}"""

EMBED = """
(int64[batch, length] input_ids) => (float[batch, length, WIDTH] inputs_embeds) {
    inputs_embeds = Gather(table, input_ids)
}"""


def _write_graph(text: str, path: Path, tensors: Mapping[str, NDArray[np.float32]], *, half: bool = False) -> None:
    text = text.replace("REST", str(SIZE - 2)).replace("WIDTH", str(SIZE))
    text = text.replace("FLOAT", "float16" if half else "float").replace("ELEMENT", "10" if half else "1")
    graphs.parse(path, text, tensors)


def _write_tokenizer(path: Path) -> None:
    tokenizer: Any = tokenizers.Tokenizer(
        models.WordLevel({token: number for number, token in enumerate(VOCABULARY)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(path))


def write_model(folder: Path, *, subfolder: str = "", suffix: str = "", half: bool = False) -> Path:
    """Write a complete model; `reference` computes its answers."""
    numbers = np.arange(SIZE, dtype=np.float32)
    target = folder / subfolder
    _write_graph(VISION, target / f"vision_encoder{suffix}.onnx", {})
    _write_graph(EMBED, target / f"embed_tokens{suffix}.onnx", {"table": np.eye(SIZE, dtype=np.float32)})
    tables = {"numbers": numbers, "numbers_column": numbers[:, np.newaxis]}
    _write_graph(DECODER, target / f"decoder_model_merged{suffix}.onnx", tables, half=half)
    _write_tokenizer(folder / "tokenizer.json")
    files: dict[str, object] = {
        "config.json": {"model_type": "llava", "image_token_id": IMAGE, "text_config": {"max_position_embeddings": 64}},
        "generation_config.json": {"eos_token_id": [END]},
        "preprocessor_config.json": {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"height": 4, "width": 4},
            "do_center_crop": False,
            "do_rescale": False,
            "do_normalize": False,
        },
        "processor_config.json": {
            "processor_class": "LlavaProcessor",
            "patch_size": 2,
            "vision_feature_select_strategy": "full",
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<begin>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def reference(words: str, features: Sequence[float], max_tokens: int, ends: Sequence[int] = (END,)) -> str:
    """Return the answer to `words` about an image of four `features`, computed without a cache."""
    return continued(f"user: <image> {words} assistant:", [features], max_tokens, ends)


def continued(text: str, images: Sequence[Sequence[float]], max_tokens: int, ends: Sequence[int] = (END,)) -> str:
    """Return the continuation of `text`, in which each ``<image>`` stands for four features of `images`."""
    ids = [VOCABULARY.index(word) if word in VOCABULARY else 1 for word in text.split()]
    features = iter(images)
    values = [value for id_ in ids for value in (next(features) if id_ == IMAGE else (id_,))]
    answer: list[int] = []
    for _ in range(max_tokens):
        total = sum(value + value * (position + 1) for position, value in enumerate(values)) + len(values)
        token = round(total) % SIZE
        if token in ends:
            break
        answer.append(token)
        values.append(token)
    return " ".join(VOCABULARY[token] for token in answer if token >= len(SPECIAL))


def image_with_features(*features: int) -> Image:
    """Return a 4x4 image whose quarters have these grey values, row by row."""
    pixels = np.repeat(np.repeat(np.array(features, np.uint8).reshape(2, 2), 2, axis=0), 2, axis=1)
    return Image(np.repeat(pixels[:, :, np.newaxis], 3, axis=2))


def prompted_image(image: Image, *prompts: str, **parameters: object) -> PromptedImage:
    return PromptedImage((image,), prompts, msgspec.convert(parameters, GenerationParameters))


def source(folder: Path, **settings: object) -> ModelSource:
    return ModelSource(
        name="tiny", version="1", folder=folder, settings=msgspec.convert(settings, registry().model_settings)
    )


def encoded_images(model: Any) -> list[NDArray[Any]]:
    """Return a list to which the vision encoder of `model` adds the features of each call."""
    features: list[NDArray[Any]] = []
    vision = model.vision

    def encode(inputs: Any) -> NDArray[Any]:
        features.append(vision(inputs))
        return features[-1]

    model.vision = encode
    return features


def change(path: Path, **fields: object) -> None:
    """Change fields of a JSON file; None removes a field."""
    content = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
