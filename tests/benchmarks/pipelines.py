"""Compare ONNX models, as they are served, with the pipelines of the libraries that they come from.

Each model answers photographs of several sizes. The table shows the largest differences from the reference, and those
with OpenCV's bilinear filter without antialiasing instead of the filter that the files or the layout ask for.
"""

import ast
import importlib
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from rich.console import Console
from rich.table import Table

from app.assembly.discovery import model_at
from app.assembly.export import export_model
from app.assembly.models import load
from app.engine.models.servable import Servable
from app.settings.model import ModelSettings, PreprocessingSettings
from fixtures import reference
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import Datatype, Tensor
from tasks.task import TaskType
from tests.benchmarks.pipelines_text import text_table
from tests.support import tiny_vision
from tests.support.server_process import ROOT

Pixels = NDArray[np.uint8]
Rows = NDArray[np.float64]
"""(n, 1) scores, or (n, 5) scores and xyxy boxes in pixels."""

PHOTOS = ("photo.jpg", "scene.jpg", "shape.jpg", "oriented.jpg")
BEFORE = PreprocessingSettings(interpolation="bilinear", antialias=False)


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A model and its reference.

    Attributes:
        name: shown in the table.
        pipeline: the reference, shown in the table.
        path: the model that is served.
        expected: the reference.
    """

    name: str
    pipeline: str
    path: Path
    expected: Callable[[Pixels], Rows]


def photos() -> list[Pixels]:
    """Return the images of the fixtures, also at a third of their size and cut to a strip."""
    full = [np.asarray(Pillow.open(ROOT / "fixtures" / "images" / name).convert("RGB")) for name in PHOTOS]
    return [*full, *(np.ascontiguousarray(pixels[::3, ::3]) for pixels in full), np.ascontiguousarray(full[0][:150])]


def served(servable: Servable, pixels: Pixels) -> Rows:
    """Return the answer of a model, ordered as its records."""
    tensor = Tensor(name="image", datatype=Datatype.UINT8, data=pixels)
    finds_boxes = servable.description.task_type is TaskType.OBJECT_DETECTION
    parameters: dict[str, object] = {"score_threshold": 0.0}
    if finds_boxes:
        parameters = {"score_threshold": reference.MIN_SCORE, "iou_threshold": reference.IOU_THRESHOLD}
    request = InferenceRequest(id="1", model_name="m", inputs=(tensor,), parameters=parameters)
    records = [
        msgspec.structs.asdict(record)
        for record in servable.predict(request, Limits()).outputs[0].predictions[0].records()
    ]
    if not finds_boxes:
        records.sort(key=lambda record: str(record["label"]))
    names = ("score", "xmin", "ymin", "xmax", "ymax")
    return np.array([[record[name] for name in names if name in record] for record in records], np.float64)


def differences(expected: Rows, found: Rows) -> tuple[float, float]:
    """Return the largest difference of a score and of a coordinate, each row compared with the nearest one."""
    if expected.shape != found.shape:
        return math.inf, math.inf
    if expected.ndim < 2 or expected.shape[1] == 1:
        return float(np.abs(expected - found).max(initial=0)), 0.0
    score, box = 0.0, 0.0
    left = found.copy()
    for row in expected:
        distance = np.abs(left[:, 0] - row[0]) * 1000 + np.abs(left[:, 1:] - row[1:]).max(axis=1)
        nearest = int(distance.argmin())
        score = max(score, abs(float(left[nearest, 0] - row[0])))
        box = max(box, float(np.abs(left[nearest, 1:] - row[1:]).max()))
        left = np.delete(left, nearest, axis=0)
    return score, box


def transformers_families(folder: Path) -> Iterator[Family]:
    """Yield exported models with random weights, compared with the processor, the model and the post-processing."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    classifiers = (("ViT", tiny_vision.vit), ("ResNet", tiny_vision.resnet))
    detectors = (
        ("DETR", tiny_vision.detr),
        ("YOLOS", tiny_vision.yolos),
        ("RT-DETR", tiny_vision.rt_detr),
        ("D-FINE", tiny_vision.d_fine),
    )
    for name, make in (*classifiers, *detectors):
        source = make(folder / name)
        kind = "ImageClassification" if (name, make) in classifiers else "ObjectDetection"
        model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(source).eval()
        processor = transformers.AutoImageProcessor.from_pretrained(source, backend="pil")
        file = export_model(source, folder / f"{name}.onnx", 17, 1e-3).file

        def expected(pixels: Pixels, model: Any = model, processor: Any = processor, kind: str = kind) -> Rows:
            with torch.no_grad():
                output = model(pixel_values=processor(Pillow.fromarray(pixels), return_tensors="pt")["pixel_values"])
            if kind == "ImageClassification":
                return named_scores(output.logits.softmax(-1)[0].numpy(), model.config.id2label)
            sizes = [pixels.shape[:2]]
            (found,) = processor.post_process_object_detection(
                output, threshold=reference.MIN_SCORE, target_sizes=sizes
            )
            height, width = pixels.shape[:2]
            boxes = np.clip(found["boxes"].numpy(), 0, [width, height, width, height])
            inside = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
            return np.concatenate([found["scores"].numpy()[:, np.newaxis], boxes], axis=1)[inside]

        yield Family(name=f"transformers {name}", pipeline="transformers, Pillow backend", path=file, expected=expected)


def timm_family(folder: Path) -> Family:
    """Return an exported classifier with a configuration of timm, compared with the steps of timm's transform."""
    source = tiny_vision.vit(folder / "timm")
    file = export_model(source, folder / "timm.onnx", 17, 1e-3).file
    labels = json.loads((file.parent / "config.json").read_text())["id2label"]
    for other in file.parent.glob("*.json"):
        other.unlink()
    config = {
        "input_size": [3, 32, 32],
        "crop_pct": 0.875,
        "interpolation": "bicubic",
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
    }
    label_names = [labels[str(number)] for number in range(len(labels))]
    (file.parent / "config.json").write_text(json.dumps({"pretrained_cfg": config, "label_names": label_names}))
    session = reference.load(file)

    def expected(pixels: Pixels) -> Rows:
        crop = torchvision_crop(pixels, math.floor(32 / 0.875), 32, Pillow.Resampling.BICUBIC)
        batch = ((crop.transpose(2, 0, 1)[np.newaxis] / 255 - 0.5) / 0.5).astype(np.float32)
        logits = reference.run(session, pixel_values=batch)[0][0]
        powers = np.exp(logits - logits.max())
        return named_scores(powers / powers.sum(), dict(enumerate(label_names)))

    return Family(name="timm ViT", pipeline="steps of timm, Pillow", path=file, expected=expected)


def ultralytics_families(folder: Path) -> Iterator[Family]:
    """Yield the fixture models, which have Ultralytics' metadata."""
    classifier = folder / "classify" / "model.onnx"
    classifier.parent.mkdir()
    # Without its settings, which select the fast filter.
    classifier.write_bytes((reference.MODELS / "classifier" / "model.onnx").read_bytes())
    session = reference.load(classifier)
    names = ast.literal_eval(session.get_modelmeta().custom_metadata_map["names"])

    def classes(pixels: Pixels) -> Rows:
        crop = torchvision_crop(pixels, 64, 64, Pillow.Resampling.BILINEAR)
        batch = crop.transpose(2, 0, 1)[np.newaxis].astype(np.float32) / 255
        return named_scores(reference.run(session, images=batch)[0][0], names)

    yield Family(
        name="Ultralytics classify", pipeline="steps of Ultralytics, Pillow", path=classifier, expected=classes
    )
    detector = reference.Detector("detector")

    def boxes(pixels: Pixels) -> Rows:
        keys = ("score", "xmin", "ymin", "xmax", "ymax")
        return np.array([[record[key] for key in keys] for record in detector(pixels)], np.float64)

    path = reference.MODELS / "detector"
    yield Family(name="Ultralytics detect", pipeline="steps of Ultralytics, OpenCV", path=path, expected=boxes)


def torchvision_crop(pixels: Pixels, side: int, crop: int, resample: int) -> Pixels:
    """Return `Resize(side)` and `CenterCrop(crop)` of torchvision."""
    height, width = pixels.shape[:2]
    other = int(side * max(height, width) / min(height, width))
    size = (side, other) if width <= height else (other, side)
    left, top = (round((length - crop) / 2.0) for length in size)
    return np.asarray(Pillow.fromarray(pixels).resize(size, resample).crop((left, top, left + crop, top + crop)))


def named_scores(scores: NDArray[Any], names: Any) -> Rows:
    """Return the scores in the order of the names, as (n, 1)."""
    order = sorted(range(len(scores)), key=lambda number: str(names[number]))
    return np.asarray(scores, np.float64)[order, np.newaxis]


def measured(family: Family, images: Sequence[Pixels], settings: ModelSettings | None) -> tuple[float, float]:
    """Return the largest differences over all images."""
    (source,) = model_at(family.path)
    servable = load(source if settings is None else msgspec.structs.replace(source, settings=settings))
    found = [differences(family.expected(pixels), served(servable, pixels)) for pixels in images]
    return max(score for score, _ in found), max(box for _, box in found)


def main() -> None:
    """Print the tables."""
    warnings.simplefilter("ignore")
    images = photos()
    table = Table("model", "reference", "score", "box, pixels", "score with OpenCV's bilinear filter")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for family in (*transformers_families(folder), timm_family(folder), *ultralytics_families(folder)):
            score, box = measured(family, images, None)
            before, _ = measured(family, images, ModelSettings(preprocessing=BEFORE))
            shown = f"{box:.3f}" if box else "-"
            table.add_row(family.name, family.pipeline, f"{score:.5f}", shown, f"{before:.5f}")
        texts = text_table(folder, images)
    console = Console(width=140)
    console.print(table)
    console.print(texts)


if __name__ == "__main__":
    main()
