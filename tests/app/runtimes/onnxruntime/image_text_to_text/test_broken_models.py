"""What is wrong with a model's folder is told in one sentence that names the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.onnxruntime.image_text_to_text import inspect, load
from app.settings.model import ModelError


def refusal(tiny: Any, folder: Path, **settings: object) -> str:
    messages: set[str] = set()
    for verb in (inspect, load):
        with pytest.raises(ModelError) as caught:
            verb(tiny.source(folder, **settings))
        messages.add(str(caught.value))
    [message] = messages
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "preprocessor_config.json", "vision_encoder.onnx", "decoder_model_merged.onnx"],
)
def test_a_missing_file(tiny: Any, folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert name in refusal(tiny, folder)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"3"])
@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "preprocessor_config.json", "tokenizer_config.json"]
)
def test_a_file_that_is_not_understood(tiny: Any, folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert name in refusal(tiny, folder)


@pytest.mark.parametrize("name", ["vision_encoder.onnx", "embed_tokens.onnx", "decoder_model_merged.onnx"])
def test_a_graph_that_is_no_graph(tiny: Any, folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"not a graph")
    assert name in refusal(tiny, folder)


def test_graphs_in_each_others_place(tiny: Any, folder: Path) -> None:
    (folder / "vision_encoder.onnx").replace(folder / "other")
    (folder / "decoder_model_merged.onnx").replace(folder / "vision_encoder.onnx")
    (folder / "other").replace(folder / "decoder_model_merged.onnx")
    assert "vision_encoder.onnx takes no pixel_values" in refusal(tiny, folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"image_token_id": 999}, "has no token 999"),
        ({"image_token_id": "<image>"}, "config.json: image_token_id"),
        ({"model_type": "paligemma"}, "model_type paligemma, which is not supported yet"),
        ({"image_grid_pinpoints": [[336, 672]]}, "several resolutions"),
        ({"image_token_id": 0}, "gives 0 places for the image"),
    ],
)
def test_a_configuration_that_does_not_fit(tiny: Any, folder: Path, change: dict[str, object], sentence: str) -> None:
    tiny.change(folder / "config.json", **change)
    assert sentence in refusal(tiny, folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"image_processor_type": "Qwen2VLImageProcessor"},
            "needs Qwen2VLImageProcessor, which is not supported yet",
        ),
        ({"size": {"height": 8, "width": 8}}, "takes images of [3, 4, 4], but preprocessing makes [3, 8, 8]"),
        ({"size": {"longest_edge": 8}}, "size that is not supported"),
        ({"size": {"shortest_edge": 4}}, "gives no fixed size"),
        ({"do_resize": False}, "disables resizing of images"),
    ],
)
def test_preprocessing_that_does_not_fit(tiny: Any, folder: Path, change: dict[str, object], sentence: str) -> None:
    tiny.change(folder / "preprocessor_config.json", **change)
    assert sentence in refusal(tiny, folder)


@pytest.mark.parametrize(
    ("template", "sentence"),
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
def test_a_chat_template_that_does_not_work(tiny: Any, folder: Path, template: str, sentence: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    assert sentence in refusal(tiny, folder)


def test_a_tokenizer_without_marks_for_tiles(tiny: Any, folder: Path) -> None:
    tiny.change(folder / "config.json", model_type="idefics3")
    assert "no <fake_token_around_image>" in refusal(tiny, folder)


def test_files_of_another_tokenizer(tiny: Any, folder: Path, byte_level: Callable[[Path], Path]) -> None:
    byte_level(folder / "tokenizer.json")
    assert "gives 0 places for the image" in refusal(tiny, folder)


def test_odd_but_allowed_json(tiny: Any, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "limit": float("inf"), "text_config": None}))
    assert load(tiny.source(folder)).description.layout == "llava"
