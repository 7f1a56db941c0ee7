"""Compare tiled images and their prompts with the Idefics3 processor of transformers."""

import importlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from app.core.settings.model import ModelError
from app.plugins.text.image_text_to_text.assembly import assemble
from tasks.vision.image import Image
from tests.support.data.rounding import assert_equal_but_for_rounding

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

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

VISION = """<ir_version: 10, opset_import: ["" : 17]>
vision (float[batch, tiles, 3, 8, 8] pixel_values, bool[batch, tiles, 8, 8] pixel_attention_mask)
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
EMBED = """<ir_version: 10, opset_import: ["" : 17]>
embed (int64[batch, length] input_ids) => (float[batch, length, 1] inputs_embeds)
<int64[1] last = {2}> {
    number = Cast<to = 1>(input_ids)
    inputs_embeds = Unsqueeze(number, last)
}"""
DECODER = """<ir_version: 10, opset_import: ["" : 17]>
decoder (float[batch, length, 1] inputs_embeds, float[batch, 1, past, 1] past_key_values_0_key)
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
        model = importlib.import_module("onnx.parser").parse_model(text)
        for value in (*model.graph.input, *model.graph.output):
            value.name = value.name.replace("_0_", ".0.")
        for node in model.graph.node:
            node.input[:] = [tensor_name.replace("_0_", ".0.") for tensor_name in node.input]
            node.output[:] = [tensor_name.replace("_0_", ".0.") for tensor_name in node.output]
        importlib.import_module("onnx").save(model, tmp_path / f"{name}.onnx")
    return tmp_path


@pytest.mark.parametrize("splitting", [True, False])
@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (8, 8), (5, 200), (200, 5), (31, 33), (33, 31)])
def test_token_ids_and_pixels_equal_those_of_hugging_face(
    tiny: Any, folder: Path, shape: tuple[int, int], splitting: bool
) -> None:
    transformers: Any = importlib.import_module("transformers")

    tiny.change(folder / "preprocessor_config.json", do_image_splitting=splitting)
    image = Image(np.random.default_rng(3).integers(0, 256, (*shape, 3), np.uint8))
    model, description = assemble(tiny.source(folder))
    assert description.layout == "idefics3"
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<|im_start|>", eos_token="<end_of_utterance>"
    )
    processor: Any = transformers.Idefics3Processor(
        transformers.AutoImageProcessor.from_pretrained(folder, backend="pil"),
        tokenizer,
        image_seq_len=PER_TILE,
        chat_template=TEMPLATE,
    )
    question = "What is\n\nit?"
    content = [{"type": "image"}, {"type": "text", "text": question}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    expected = processor(text=text, images=[image.pixels], return_tensors="np")

    tiles = model.prepare(image)
    # Tiles are resized up to three times, and small images have few bytes.
    assert_equal_but_for_rounding(tiles.pixel_values, expected["pixel_values"], step=2 / 255, share=0.03)
    assert expected["pixel_attention_mask"].all(), "the vision encoder gets a mask of ones"
    assert (tiles.rows > 0) is splitting
    encoded_image = model.encode_image(image)
    before, after = model.prompts.encode(question, "prompts[0]")
    assert before + encoded_image.ids + after == expected["input_ids"][0].tolist()
    assert encoded_image.features.shape == (tiles.count * PER_TILE, 1)


def test_several_threads_can_tile_images_concurrently(tiny: Any, folder: Path) -> None:
    model = assemble(tiny.source(folder))[0]
    images = [Image(np.full((8 + 9 * n, 50, 3), n, np.uint8)) for n in range(8)]

    def tile(image: Image) -> Any:
        return model.prepare(image).pixel_values

    expected = [tile(image) for image in images]
    with ThreadPoolExecutor(4) as pool:
        for expected_pixels, pixels in zip(expected, pool.map(tile, images), strict=True):
            np.testing.assert_array_equal(expected_pixels, pixels)


def test_declared_preprocessing_is_rejected(tiny: Any, folder: Path) -> None:
    with pytest.raises(ModelError, match="cuts images into tiles"):
        assemble(tiny.source(folder, preprocessing={"size": [8, 8]}))


def test_unnormalised_tiles_are_in_0_and_1(tiny: Any, folder: Path) -> None:
    tiny.change(folder / "preprocessor_config.json", do_normalize=False)
    tiles = assemble(tiny.source(folder))[0].prepare(Image(np.full((8, 8, 3), 51, np.uint8)))
    np.testing.assert_allclose(tiles.pixel_values, 0.2, rtol=1e-6)


@pytest.mark.parametrize("size", [32, {"shortest_edge": 32}, {"longest_edge": 5000}])
def test_size_without_a_longest_edge_up_to_4096_is_rejected(tiny: Any, folder: Path, size: object) -> None:
    tiny.change(folder / "preprocessor_config.json", size=size)
    with pytest.raises(ModelError, match=r"size that is not supported: .*; expected a longest_edge up to 4096"):
        assemble(tiny.source(folder))


def test_unknown_image_processor_is_rejected(tiny: Any, folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text('{"image_processor_type": "NoImageProcessor"}')
    with pytest.raises(ModelError, match="no usable image processor"):
        assemble(tiny.source(folder))
