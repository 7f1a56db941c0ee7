"""Compare the preprocessing in exporters' files with a restatement of the steps of their libraries in NumPy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata
from app.core.runtimes.onnxruntime.files.model_files import ModelFiles
from app.core.runtimes.onnxruntime.graph import ImageInputs
from app.core.runtimes.onnxruntime.images.decision import decide_preprocessing
from app.core.runtimes.onnxruntime.images.image_batch import ImageBatcher
from app.core.settings.model import ModelError, ModelSettings
from app.plugins.layouts.exporter_files import read_folders
from metadata.model import Fact, Origin
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TaskType
from tasks.vision.image import Image

CLASSIFY, DETECT = TaskType.IMAGE_CLASSIFICATION, TaskType.OBJECT_DETECTION
NOISE = np.random.default_rng(5).integers(0, 256, (427, 641, 3), np.uint8)
IMAGE = np.asarray(cv2.GaussianBlur(NOISE, (5, 5), 2), np.uint8)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
MEAN_255, STD_255 = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
Array = NDArray[Any]


def resized(width: float, height: float, interpolation: int = cv2.INTER_LINEAR) -> Array:
    return cv2.resize(IMAGE, (int(width), int(height)), interpolation=interpolation)


def padded(image: Array, height: int, width: int, value: float, top: int = 0, left: int = 0) -> Array:
    canvas = np.full((height, width, 3), value, np.float64)
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def scaled(image: Array) -> Array:
    return (image / 255 - MEAN) / STD


def paddle_classifier() -> Array:
    """Round the sides, and floor the offset, as ResizeImage and CropImage do."""
    percent = 256 / 427
    large = resized(round(641 * percent), round(427 * percent))
    left, top = (large.shape[1] - 224) // 2, (large.shape[0] - 224) // 2
    return scaled(large[top : top + 224, left : left + 224])


def mmlab_detector() -> Array:
    """Scale into 256 x 400, normalise BGR, and pad with 0 to multiples of 32."""
    scale = min(256 / 427, 400 / 641)
    small = resized(int(641 * scale + 0.5), int(427 * scale + 0.5))[..., ::-1]
    return padded((small - MEAN_255[::-1]) / STD_255[::-1], 256, 384 + 32 * (small.shape[1] > 384), 0)


def mmlab_pretrained() -> Array:
    large = resized(256 * 641 // 427, 256)
    left = round((large.shape[1] - 224) / 2)
    return (large[16:240, left : left + 224] - MEAN_255) / STD_255


def letterbox() -> Array:
    small = resized(320, round(427 * 320 / 641))
    return padded(small, 320, 320, 114, top=round((320 - small.shape[0]) // 2 - 0.1)) / 255


PADDLE_CLASSIFIER = {
    "Global": {"model_name": "PP-LCNet"},
    "PreProcess": {
        "transform_ops": [
            {"ResizeImage": {"resize_short": 256}},
            {"CropImage": {"size": 224}},
            {"NormalizeImage": {"channel_num": 3, "mean": MEAN, "order": "", "scale": 1 / 255, "std": STD}},
            {"ToCHWImage": None},
        ]
    },
    "PostProcess": {"Topk": {"topk": 5, "label_list": ["cat", "dog"]}},
}
NORMALIZE = {"type": "NormalizeImage", "mean": MEAN, "std": STD, "is_scale": True, "norm_type": "mean_std"}
PADDLE_DETECTOR = {
    "arch": "PPYOLOE",
    "Preprocess": [
        {"type": "Resize", "interp": 2, "keep_ratio": False, "target_size": [320, 256]},
        {"type": "NormalizeImage", "mean": [0.0] * 3, "std": [1.0] * 3, "norm_type": "none"},
        {"type": "Permute"},
    ],
    "label_list": ["person", "car"],
}
PADDLE_RCNN = {
    **PADDLE_DETECTOR,
    "Preprocess": [
        {"type": "Resize", "interp": 1, "keep_ratio": True, "target_size": [256, 400]},
        NORMALIZE,
        {"type": "Permute"},
        {"type": "PadStride", "stride": 32},
    ],
}


def mmdeploy(module: str, *transforms: dict[str, Any]) -> dict[str, Any]:
    steps = [{"type": "LoadImageFromFile"}, *transforms, {"type": "Collect", "keys": ["img"]}]
    return {"pipeline": {"tasks": [{"type": "Task", "transforms": steps}, {"name": "net"}, {"module": module}]}}


MM_NORMALIZE = {"type": "Normalize", "to_rgb": True, "mean": MEAN_255, "std": STD_255}
BGR = {"to_rgb": False, "mean": MEAN_255[::-1], "std": STD_255[::-1]}
MM_DETECTOR = mmdeploy(
    "mmdet",
    {"type": "Resize", "keep_ratio": True, "size": [400, 256]},
    {**MM_NORMALIZE, **BGR},
    {"type": "Pad", "size_divisor": 32},
    {"type": "DefaultFormatBundle"},
)
RTMDET = mmdeploy(
    "mmdet",
    {"type": "Resize", "keep_ratio": True, "size": [320, 320]},
    {"type": "Pad", "size": [320, 320], "pad_val": {"img": [114, 114, 114]}},
    MM_NORMALIZE,
    {"type": "Pad", "size_divisor": 1},
)
MM_CLASSIFIER = mmdeploy(
    "mmcls",
    {"type": "Resize", "keep_ratio": True, "size": [256, -1]},
    {"type": "CenterCrop", "crop_size": 224},
    MM_NORMALIZE,
    {"type": "ImageToTensor", "keys": ["img"]},
)
MMYOLO = mmdeploy(
    "mmdet",
    {"type": "LetterResize", "scale": [320, 320], "allow_scale_up": False, "pad_val": {"img": 114}},
    {"type": "Normalize", "to_rgb": True, "mean": [0.0] * 3, "std": [255.0] * 3},
)


def rtmdet() -> Array:
    small = resized(320, int(427 * 320 / 641 + 0.5))
    return (padded(small, 320, 320, 114) - MEAN_255) / STD_255


def paddle_rcnn() -> Array:
    scale = 256 / 427
    small = resized(round(641 * scale), 256)
    return padded(scaled(small), 256, -(-small.shape[1] // 32) * 32, 0)


def model_files(folder: Path, name: str, content: Any) -> ModelFiles:
    (folder / name).write_text(json.dumps(content) if name.endswith("json") else yaml.safe_dump(content))
    found = read_folders([folder])
    assert found is not None
    return ModelFiles(file=folder / "model.onnx", settings=ModelSettings(), metadata=ExportMetadata(), folder=found)


@pytest.mark.parametrize(
    ("name", "content", "task", "expected"),
    [
        ("inference.yml", PADDLE_CLASSIFIER, CLASSIFY, paddle_classifier),
        ("infer_cfg.yml", PADDLE_DETECTOR, DETECT, lambda: resized(256, 320, cv2.INTER_CUBIC) / 255),
        ("inference.yml", PADDLE_RCNN, DETECT, paddle_rcnn),
        ("pipeline.json", MM_DETECTOR, DETECT, mmlab_detector),
        ("pipeline.json", RTMDET, DETECT, rtmdet),
        ("pipeline.json", MM_CLASSIFIER, CLASSIFY, mmlab_pretrained),
        ("pipeline.json", MMYOLO, DETECT, letterbox),
    ],
    ids=["PaddleClas", "PaddleDetection", "its RCNN", "MMDetection", "RTMDet", "MMPretrain", "MMYOLO"],
)
def test_file_gives_the_tensor_of_the_library(
    tmp_path: Path, name: str, content: Any, task: TaskType, expected: Callable[[], Array]
) -> None:
    facts: list[Fact] = []
    inputs = ImageInputs(image=TensorSpec(name="image", datatype=Datatype.FP32, shape=(-1, 3, -1, -1)))
    options = decide_preprocessing(inputs, model_files(tmp_path, name, content), facts, task)
    assert {fact.origin for fact in facts} == {Origin.EXPORT_FILE}
    frame = options.dynamic_size.input_size(*IMAGE.shape[:2]) if options.dynamic_size else None
    tensor, _ = ImageBatcher(options, Datatype.FP32).prepare([Image(IMAGE)], 1, frame)
    wanted = expected()
    assert tensor[0].shape == wanted.shape[2:] + wanted.shape[:2]
    assert np.abs(tensor[0].transpose(1, 2, 0) - wanted).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "content", "task", "labels"),
    [
        ("inference.yml", PADDLE_CLASSIFIER, CLASSIFY, ("cat", "dog")),
        ("inference.yml", {**PADDLE_CLASSIFIER, "PostProcess": {"NormalizeFeatures": None}}, TaskType.TENSOR, None),
        ("infer_cfg.yml", PADDLE_DETECTOR, None, ("person", "car")),
        ("pipeline.json", MM_CLASSIFIER, CLASSIFY, None),
        ("pipeline.json", MM_DETECTOR, None, None),
    ],
)
def test_file_declares_task_and_labels(tmp_path: Path, name: str, content: Any, task: Any, labels: Any) -> None:
    known = model_files(tmp_path, name, content)
    assert known.declared_task()[0] == task
    assert known.labels == (None if labels is None else (labels, Origin.EXPORT_FILE))


def test_unknown_steps_are_left_to_the_layout(tmp_path: Path) -> None:
    content = {**PADDLE_DETECTOR, "Preprocess": [{"type": "WarpAffine"}]}
    assert model_files(tmp_path, "infer_cfg.yml", content).preprocessing_of_folder(DETECT) is None


@pytest.mark.parametrize(
    "text",
    ["PreProcess: {transform_ops: []}\nPostProcess: {name: DBPostProcess, thresh: 0.3}", "- a", "pipeline: 1", ""],
    ids=["PaddleOCR", "list", "another tool", "empty"],
)
def test_other_files_of_the_name_are_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "inference.yml").write_text(text)
    assert read_folders([tmp_path]) is None


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "{Preprocess: [{type: Resize}], label_list: []}",
        "{Preprocess: [{type: Pad, size: [1, 2, 3]}], label_list: []}",
        "{Preprocess: 1, label_list: []}",
    ],
)
def test_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "inference.yml").write_text(text)
    found = read_folders([tmp_path])
    assert found is not None
    known = ModelFiles(file=tmp_path / "m.onnx", settings=ModelSettings(), metadata=ExportMetadata(), folder=found)
    with pytest.raises(ModelError, match=r"inference\.yml: "):
        known.declared_task()
