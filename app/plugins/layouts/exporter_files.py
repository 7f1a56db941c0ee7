"""Read the preprocessing that exporters of Paddle and OpenMMLab write beside a graph.

- ``inference.yml`` of PaddleClas (``dump_infer_config``): steps by name in ``PreProcess.transform_ops``, and labels in
  ``PostProcess``. PaddleOCR's file has steps that its layouts know, and is left to them.
- ``infer_cfg.yml`` of PaddleDetection (``_dump_infer_config``), or ``inference.yml`` in PaddleX: steps by ``type`` in
  ``Preprocess``, and ``label_list``.
- ``pipeline.json`` of MMDeploy (``get_preprocess`` of each task): ``transforms`` of its first task, by ``type``.

All resize with OpenCV. With an unknown step, the preprocessing is guessed as without the file.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import yaml

from app.core.runtimes.onnxruntime.files.model_files import FolderMetadata
from app.core.runtimes.onnxruntime.images.preprocessing import (
    BYTE,
    IMAGENET_MEAN,
    IMAGENET_STD,
    ONES,
    ZERO_FILL,
    ZEROS,
    PartialPreprocessing,
    Triple,
)
from app.core.settings.model import MAX_JSON_BYTES, ModelError, read_bounded
from metadata.model import Origin
from tasks.task import TaskType

_FILES = ("inference.yml", "infer_cfg.yml", "pipeline.json")
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "area", "lanczos")
"""By the number of OpenCV."""
_TASKS: Mapping[Any, TaskType] = {
    "Topk": TaskType.IMAGE_CLASSIFICATION,
    "NormalizeFeatures": TaskType.TENSOR,
    "mmcls": TaskType.IMAGE_CLASSIFICATION,
    "mmseg": TaskType.IMAGE_SEGMENTATION,
}
"""By the step of PaddleClas after the graph, and by the module of MMDeploy's last task."""

_Step = Mapping[str, Any]
_Fields = dict[str, Any]
"""Fields of `PartialPreprocessing`."""


class PaddedEdges(msgspec.Struct, frozen=True, kw_only=True):
    """Resize the shorter side to a length, the longer side to a limit, and pad to multiples of `stride`; pixels."""

    shortest: int
    longest: int
    stride: int = 1
    resize: str = "pad"

    def __str__(self) -> str:
        return f"sides to at most {self.shortest} and {self.longest}, padded to multiples of {self.stride}"

    def scale(self, height: int, width: int) -> float:
        return min(self.shortest / min(height, width), self.longest / max(height, width))

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        scale = self.scale(height, width)
        rows, columns = (ceil(int(side * scale + 0.5) / self.stride) * self.stride for side in (height, width))
        return rows, columns


def read_folders(folders: Sequence[Path]) -> FolderMetadata | None:
    """Read the first of the files; return None without one. `error` says why one cannot be read."""
    path = next((path for folder in folders for name in _FILES if (path := folder / name).is_file()), None)
    if path is None:
        return None
    try:
        return _describe(yaml.safe_load(read_bounded(path, MAX_JSON_BYTES)))
    except (yaml.YAMLError, ModelError, RecursionError, LookupError, TypeError, ValueError, AttributeError) as error:
        return FolderMetadata(error=f"{path}: not as its exporter writes it: {type(error).__name__}: {error}")


def _describe(content: Any) -> FolderMetadata | None:
    """Return what a file declares; None for a file of another tool with the same name."""
    steps: Any
    labels, task, library = None, None, _paddle
    match content:
        case {"pipeline": {"tasks": [{"transforms": steps}, *_, {"module": module}]}}:
            task, library = _TASKS.get(module), _mmlab
        case {"Preprocess": steps, "label_list": labels}:
            pass
        case {"PreProcess": {"transform_ops": named}, "PostProcess": {"Topk": head} | {"NormalizeFeatures": head}}:
            task, labels = _TASKS["Topk" if head else "NormalizeFeatures"], head and head.get("label_list")
            steps = [{"type": name, **(options or {})} for step in named for name, options in step.items()]
        case _:
            return None
    found = _read(steps, library)
    return FolderMetadata(
        task_type=task,
        labels=tuple(map(str, labels)) if labels else None,
        sizes=((found.size if found else None, Origin.EXPORT_FILE),),
        preprocessing=lambda _: found,
        origin=Origin.EXPORT_FILE,
    )


def _read(steps: Sequence[_Step], library: Callable[[_Step, _Fields], _Fields | None]) -> PartialPreprocessing | None:
    """Return the preprocessing of all steps; None if one is unknown, or if they do not decide the size."""
    fields: _Fields = {"interpolation": "bilinear", "antialias": False, "channel_order": "RGB"}
    for step in steps:
        if (changes := library(step, fields)) is None:
            return None
        fields |= changes
    if "resize" not in fields or "size" not in fields or fields["interpolation"] not in _INTERPOLATIONS:
        return None
    fields = {"scale": 1.0, "mean": ZEROS, "std": ONES, **fields, "crop": library.__name__[1:]}
    return PartialPreprocessing(**fields, origin=Origin.EXPORT_FILE)


def _paddle(step: _Step, fields: _Fields) -> _Fields | None:
    """Return what a step of PaddleClas or PaddleDetection changes; None for an unknown one."""
    match step["type"]:
        case "ResizeImage":
            antialias = str(step.get("backend", "cv2")).lower() == "pil"
            changes: _Fields = {"interpolation": step.get("interpolation") or "bilinear", "antialias": antialias}
            if step.get("resize_short"):
                return {**changes, "resize": "crop", "shorter_side": int(step["resize_short"])}
            size = _pair(step["size"])[::-1]
            return {**changes, "resize": "stretch", "size": size, "shorter_side": min(size)}
        case "CropImage":
            return {"size": _pair(step["size"])[::-1]}
        case "Resize":
            keeps_ratio, filter_number = step.get("keep_ratio", True), int(step.get("interp", 1))
            return _resize(_pair(step["target_size"]), _INTERPOLATIONS[filter_number], keeps_ratio=keeps_ratio)
        case "PadStride":
            return _padded(fields, step["stride"])
        case "Pad":
            return {"size": _pair(step["size"]), "fill": int(step.get("fill_value", [114])[0]), "dynamic_size": None}
        case "NormalizeImage":
            changes = {"scale": step.get("scale", BYTE) if step.get("is_scale", True) else 1.0}
            if step.get("norm_type") != "none":
                changes["mean"] = _triple(step.get("mean", IMAGENET_MEAN))
                changes["std"] = _triple(step.get("std", IMAGENET_STD))
            return changes
        case "Permute" | "ToCHWImage":
            return {}
        case _:
            return None


def _mmlab(step: _Step, fields: _Fields) -> _Fields | None:
    """Return what a transform of MMDeploy changes; None for an unknown one. Sizes are width and height."""
    match step["type"]:
        case "Resize":
            width, height = _pair(step["size"])
            if height == -1:
                return {"resize": "crop", "shorter_side": width}
            keeps_ratio = step.get("keep_ratio", False)
            return _resize((height, width), step.get("interpolation", "bilinear"), keeps_ratio=keeps_ratio)
        case "LetterResize":
            return {"resize": "letterbox", "size": _pair(step["scale"]), "fill": _grey(step)}
        case "CenterCrop":
            return {"size": _pair(step["crop_size"])}
        case "Pad" if step.get("size") or step.get("pad_to_square"):
            size = _pair(step.get("size") or max(fields["size"]))[::-1]
            # Before normalisation, the file declares a colour; after it, 0.
            return {"size": size, "fill": ZERO_FILL if "mean" in fields else _grey(step), "dynamic_size": None}
        case "Pad":
            return _padded(fields, step.get("size_divisor") or 1)
        case "Normalize":
            is_rgb = step.get("to_rgb", True)
            mean, std = (_triple(step[name])[:: 1 if is_rgb else -1] for name in ("mean", "std"))
            return {"mean": mean, "std": std, "channel_order": "RGB" if is_rgb else "BGR"}
        case "LoadImageFromFile" | "ImageToTensor" | "DefaultFormatBundle" | "Collect":
            return {}
        case _:
            return None


def _resize(size: tuple[int, int], interpolation: str, *, keeps_ratio: bool) -> _Fields:
    changes = {"size": size, "interpolation": interpolation}
    if not keeps_ratio:
        return {**changes, "resize": "stretch"}
    rule = PaddedEdges(shortest=min(size), longest=max(size))
    return {**changes, "resize": "pad", "fill": ZERO_FILL, "dynamic_size": rule}


def _padded(fields: _Fields, stride: int) -> _Fields:
    rule = fields.get("dynamic_size")
    return {"dynamic_size": msgspec.structs.replace(rule, stride=stride)} if rule and stride > 1 else {}


def _pair(value: Any) -> tuple[int, int]:
    """Return two sides in the order of the file; a number stands for both."""
    first, second = (value, value) if isinstance(value, int) else value
    return int(first), int(second)


def _triple(values: Any) -> Triple:
    red, green, blue = map(float, values)
    return red, green, blue


def _grey(step: _Step) -> int:
    value: Any = step.get("pad_val", 0)
    value = value.get("img", 0) if hasattr(value, "get") else value
    return int(value[0] if hasattr(value, "__getitem__") else value)


READERS = (read_folders,)
