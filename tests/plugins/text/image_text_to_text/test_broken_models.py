"""Test that an error in a model folder is reported in one line that names the file."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.core.settings.model import ModelError
from app.plugins.text.image_text_to_text.assembly import assemble, load


def load_error(tiny: Any, folder: Path, **settings: object) -> str:
    messages: set[str] = set()
    for operation in (assemble, load):
        with pytest.raises(ModelError) as caught:
            operation(tiny.source(folder, **settings))
        messages.add(str(caught.value))
    [message] = messages
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "preprocessor_config.json"])
def test_missing_file_is_named(tiny: Any, folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert name in load_error(tiny, folder)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"3"])
@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "preprocessor_config.json", "tokenizer_config.json"]
)
def test_invalid_json_file_is_named(tiny: Any, folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert name in load_error(tiny, folder)


@pytest.mark.parametrize("name", ["vision_encoder.onnx", "embed_tokens.onnx", "decoder_model_merged.onnx"])
def test_invalid_graph_file_is_named(tiny: Any, folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"not a graph")
    assert name in load_error(tiny, folder)


def test_swapped_graphs_are_rejected(tiny: Any, folder: Path) -> None:
    (folder / "vision_encoder.onnx").replace(folder / "other")
    (folder / "decoder_model_merged.onnx").replace(folder / "vision_encoder.onnx")
    (folder / "other").replace(folder / "decoder_model_merged.onnx")
    assert "vision_encoder.onnx takes no pixel_values" in load_error(tiny, folder)


@pytest.mark.parametrize(
    ("change", "error_text"),
    [
        ({"image_token_id": 999}, "has no token 999"),
        ({"image_token_id": -200}, "has no token -200"),
        ({"image_token_id": 2**32}, "has no token 4294967296"),
        ({"image_token_id": "<image>"}, "config.json: image_token_id"),
        ({"model_type": "paligemma"}, "model_type paligemma, which is not supported yet"),
        ({"image_grid_pinpoints": [[336, 672]]}, "several resolutions"),
        ({"image_token_id": 0}, "gives 0 places for the image"),
    ],
)
def test_unsupported_configuration_is_rejected(
    tiny: Any, folder: Path, change: dict[str, object], error_text: str
) -> None:
    tiny.change(folder / "config.json", **change)
    assert error_text in load_error(tiny, folder)


@pytest.mark.parametrize(
    ("change", "error_text"),
    [
        (
            {"image_processor_type": "Qwen2VLImageProcessor"},
            "needs Qwen2VLImageProcessor, which is not supported yet",
        ),
        ({"size": {"height": 8, "width": 8}}, "takes images of [3, 4, 4], but preprocessing makes [3, 8, 8]"),
        ({"size": {"longest_edge": 8}}, "size that is not supported"),
        ({"size": {"shortest_edge": 4}}, "gives no fixed size"),
        ({"do_resize": False}, "disables resizing of images"),
        (
            {"size": {"height": 8, "width": 4}, "do_center_crop": True, "crop_size": 4},
            "cuts out (4, 4) of other proportions",
        ),
    ],
)
def test_unsupported_preprocessing_is_rejected(
    tiny: Any, folder: Path, change: dict[str, object], error_text: str
) -> None:
    tiny.change(folder / "preprocessor_config.json", **change)
    assert error_text in load_error(tiny, folder)


@pytest.mark.parametrize(
    ("template", "error_text"),
    [
        ("{% if %}", "chat_template.jinja cannot be compiled"),
        ("{{ raise_exception('no thanks') }}", "cannot be rendered: no thanks"),
        ("{{ 1 / 0 }}", "cannot be rendered: division by zero"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be rendered: access to attribute '__class__'"),
        ("{% for a in range(90000) %}{{ 'x' * 999 }}{% endfor %}", "writes more than 1,000,000 characters"),
        ("{% for a in range(99999999) %}{% endfor %}", "cannot be rendered: Range too big"),
        ("<image> hello", "leaves out the question"),
        ("{{ messages[0]['content'][1]['text'] }}", "gives 0 places for the image (<image>), expected one"),
        ("<image> <image> {{ messages[0]['content'][1]['text'] }}", "gives 2 places for the image"),
    ],
)
def test_broken_chat_template_is_rejected(tiny: Any, folder: Path, template: str, error_text: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    assert error_text in load_error(tiny, folder)


def test_chat_templates_without_a_default_are_rejected(tiny: Any, folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    tiny.change(folder / "tokenizer_config.json", chat_template=[{"name": "tools", "template": tiny.template}])
    assert "tokenizer_config.json has several chat templates, none of them named default" in load_error(tiny, folder)


def test_image_features_of_another_width_than_embeddings_are_rejected(tiny: Any, folder: Path) -> None:
    onnx: Any = importlib.import_module("onnx")
    model = onnx.load(folder / "vision_encoder.onnx")
    (padding,) = (tensor for tensor in model.graph.initializer if tensor.name == "before")
    padding.int64_data[-1] -= 3
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value -= 3
    onnx.save(model, folder / "vision_encoder.onnx")
    with pytest.raises(ModelError, match=r"blank image: .* its image features are 28 values wide, embeddings 31"):
        load(tiny.source(folder))


def test_tokenizer_without_tile_tokens_is_rejected(tiny: Any, folder: Path) -> None:
    tiny.change(folder / "config.json", model_type="idefics3")
    assert "no <fake_token_around_image>" in load_error(tiny, folder)


def test_tokenizer_without_image_token_is_rejected(tiny: Any, folder: Path, byte_level: Callable[[Path], Path]) -> None:
    byte_level(folder / "tokenizer.json")
    assert "gives 0 places for the image" in load_error(tiny, folder)


def test_graph_in_bfloat16_is_rejected(tiny: Any, folder: Path) -> None:
    onnx: Any = importlib.import_module("onnx")
    model = onnx.load(folder / "embed_tokens.onnx")
    [output] = model.graph.output
    model.graph.node[-1].output[0] = "wide"
    model.graph.node.append(onnx.helper.make_node("Cast", ["wide"], [output.name], to=onnx.TensorProto.BFLOAT16))
    output.type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    onnx.save(model, folder / "embed_tokens.onnx")
    assert "'inputs_embeds' is of datatype BF16" in load_error(tiny, folder)


def test_infinite_and_null_values_in_json_are_accepted(tiny: Any, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "limit": float("inf"), "text_config": None}))
    assert load(tiny.source(folder)).description.layout == "llava"
