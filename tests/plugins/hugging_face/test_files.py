"""Test reading the Hugging Face files beside a model."""

import importlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.core.settings.model import ModelError
from app.plugins.hugging_face.files import Config, Preprocessor, Size, TimmPreprocessing, read_json


def read_config(folder: Path, graph: str = "model.onnx") -> Config | None:
    return read_json(Config, (folder / graph).parent / "config.json", folder / "config.json")


def read_preprocessor(folder: Path, graph: str = "model.onnx") -> Preprocessor | None:
    name = "preprocessor_config.json"
    return read_json(Preprocessor, (folder / graph).parent / name, folder / name)


def test_config_and_preprocessor_files_are_optional(tmp_path: Path) -> None:
    assert read_config(tmp_path) is None
    assert read_preprocessor(tmp_path) is None


def test_labels_are_ordered_by_class_number(tmp_path: Path) -> None:
    names = {str(number): f"class {number}" for number in reversed(range(12))}
    (tmp_path / "config.json").write_text(json.dumps({"id2label": names, "image_size": 224, "hidden_size": 9}))
    config = read_config(tmp_path, "onnx/model.onnx")
    assert config is not None
    assert config.labels == tuple(f"class {number}" for number in range(12))
    assert config.size == (224, 224)


def test_infinity_in_another_field_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"image_size": 224, "time_step_limit": [0.0, Infinity], "scale": NaN}')
    config = read_config(tmp_path)
    assert config is not None
    assert config.size == (224, 224)


def test_labels_with_gaps_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"id2label": {"0": "a", "2": "c"}}')
    config = read_config(tmp_path)
    assert config is not None
    assert config.labels is None


def test_preprocessor_config_beside_graph_is_preferred(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "preprocessor_config.json").write_text('{"size": 1}')
    (tmp_path / "onnx" / "preprocessor_config.json").write_text('{"size": {"height": 2, "width": 3}}')
    preprocessor = read_preprocessor(tmp_path, "onnx/model.onnx")
    assert preprocessor is not None
    assert preprocessor.size == Size(height=2, width=3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "Beit", "Bit", "ChineseCLIP", "CLIP", "ConditionalDetr", "ConvNext", "DeformableDetr", "DeiT", "Detr", "DPT",
        "EfficientNet", "Levit", "MobileNetV1", "MobileNetV2", "MobileViT", "PoolFormer", "Pvt", "Segformer", "ViT",
        "Yolos",
    ],
)  # fmt: skip
def test_size_that_is_a_number_means_what_transformers_reads(name: str) -> None:
    processor: Any = getattr(importlib.import_module("transformers"), f"{name}ImageProcessorPil")(size=300)
    for processor_class in (f"{name}ImageProcessor", f"{name}FeatureExtractor"):
        resized = Preprocessor(feature_extractor_type=processor_class, size=300).resized
        expected = {side: length for side, length in dict(processor.size).items() if length is not None}
        assert {side: length for side, length in msgspec.structs.asdict(resized).items() if length} == expected


def test_numeric_size_of_detr_has_its_own_limit() -> None:
    resized = Preprocessor(feature_extractor_type="DetrFeatureExtractor", size=800, max_size=1000).resized
    assert resized == Size(shortest_edge=800, longest_edge=1000)


def test_timm_config_is_read(tmp_path: Path) -> None:
    pretrained_cfg = {
        "input_size": [3, 288, 320],
        "mean": [0.5, 0.5, 0.5],
        "crop_pct": 0.9,
        "crop_mode": "center",
        "tag": "",
    }
    content = {
        "architecture": "resnet18",
        "num_classes": 2,
        "label_names": ["a", "b"],
        "pretrained_cfg": pretrained_cfg,
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    config = read_config(tmp_path)
    assert config is not None
    assert config.labels == ("a", "b")
    assert config.size == (288, 320)
    assert config.pretrained_cfg == TimmPreprocessing(
        input_size=(3, 288, 320), mean=(0.5, 0.5, 0.5), crop_pct=0.9, crop_mode="center"
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("config.json", "{", "not valid JSON"),
        ("config.json", '{"pretrained_cfg": {"mean": [0.5]}}', "pretrained_cfg.mean"),
        ("config.json", '{"label_names": "cat"}', "label_names"),
        ("config.json", "[]", "Expected `object`"),
        ("config.json", "[" * 100_000, "not valid JSON|Expected `object`"),
        ("config.json", '{"id2label": {"0": 1}}', "id2label"),
        ("preprocessor_config.json", '{"image_mean": [0.5]}', "image_mean"),
        ("preprocessor_config.json", '{"size": "big"}', "size"),
        ("preprocessor_config.json", '{"size": {"shortest_edge": 0}}', "shortest_edge"),
        ("preprocessor_config.json", '{"crop_pct": 0}', "crop_pct"),
        ("config.json", '{"image_size": "224"}', "image_size"),
    ],
)
def test_invalid_file_is_named_in_error(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=reason) as caught:
        _ = read_config(tmp_path), read_preprocessor(tmp_path)
    assert str(caught.value).startswith(str(tmp_path / name))
