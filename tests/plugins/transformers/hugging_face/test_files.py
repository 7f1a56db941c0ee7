"""Test reading the Hugging Face files beside a model."""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.core.settings.model import ModelError
from app.plugins.transformers.hugging_face.files import (
    Config,
    EdgeLimits,
    Preprocessor,
    Size,
    TimmPreprocessing,
    read_json,
)

CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"


@pytest.mark.parametrize(
    ("content", "labels", "size"),
    [
        ({"id2label": {str(number): f"class {number}" for number in reversed(range(12))}, "image_size": 224},
         tuple(f"class {number}" for number in range(12)), (224, 224)),
        ({"image_size": [32, 48], "time_step_limit": [0.0, math.inf], "scale": math.nan}, None, (32, 48)),
        ({"id2label": {"0": "a", "2": "c"}}, None, None),
        ({"architecture": "resnet18", "label_names": ["a", "b"],
          "pretrained_cfg": {"input_size": [3, 288, 320], "mean": [0.5] * 3, "crop_pct": 0.9, "tag": ""}},
         ("a", "b"), (288, 320)),
    ],
)  # fmt: skip
def test_labels_and_size_are_read(
    tmp_path: Path, content: dict[str, Any], labels: tuple[str, ...] | None, size: tuple[int, int] | None
) -> None:
    (tmp_path / CONFIG).write_text(json.dumps(content))
    config = read_json(Config, tmp_path / "onnx" / CONFIG, tmp_path / CONFIG)
    assert config is not None
    assert (config.labels, config.size) == (labels, size)
    if config.pretrained_cfg is not None:
        mean = (0.5, 0.5, 0.5)
        assert config.pretrained_cfg == TimmPreprocessing(input_size=(3, 288, 320), mean=mean, crop_pct=0.9)


def test_first_of_the_files_that_exists_is_read(tmp_path: Path) -> None:
    files = tmp_path / "onnx" / PREPROCESSOR, tmp_path / PREPROCESSOR
    assert read_json(Preprocessor, *files) is None
    files[0].parent.mkdir()
    files[1].write_text('{"size": 1}')
    files[0].write_text('{"size": {"height": 2, "width": 3}}')
    found = read_json(Preprocessor, *files)
    assert found is not None
    assert found.size == Size(height=2, width=3)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Config, "{", "not valid JSON"),
        (Config, '{"pretrained_cfg": {"mean": [0.5]}}', "pretrained_cfg.mean"),
        (Config, '{"label_names": "cat"}', "label_names"),
        (Config, "[]", "Expected `object`"),
        (Config, "[" * 100_000, "not valid JSON|Expected `object`"),
        (Config, '{"id2label": {"0": 1}}', "id2label"),
        (Config, '{"image_size": "224"}', "image_size"),
        (Preprocessor, '{"image_mean": [0.5]}', "image_mean"),
        (Preprocessor, '{"size": "big"}', "size"),
        (Preprocessor, '{"size": {"shortest_edge": 0}}', "shortest_edge"),
        (Preprocessor, '{"crop_pct": 0}', "crop_pct"),
    ],
)
def test_invalid_file_is_named_in_error(tmp_path: Path, kind: type[Any], text: str, reason: str) -> None:
    (tmp_path / CONFIG).write_text(text)
    with pytest.raises(ModelError, match=reason) as caught:
        read_json(kind, tmp_path / CONFIG)
    assert str(caught.value).startswith(str(tmp_path / CONFIG))


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


@pytest.mark.parametrize(
    ("height", "width", "frame"),
    [
        # These are the sizes of DETR's processor, with edges of 800 and 1333.
        (480, 640, (800, 1066)),
        (640, 480, (1066, 800)),
        (500, 2000, (333, 1333)),
        (800, 800, (800, 800)),
        (1, 5000, (32, 1333)),
    ],
)
def test_edges_keep_aspect_ratio(height: int, width: int, frame: tuple[int, int]) -> None:
    assert EdgeLimits(shortest=800, longest=1333).input_size(height, width) == frame
