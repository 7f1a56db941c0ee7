"""Exports of transformers and timm with random weights, compared with the libraries."""

import importlib
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from app.plugins.transformers.torch.export import export_model
from tests.benchmarks.pipelines import references as reference
from tests.benchmarks.pipelines.comparison import Answer, Family, Pixels
from tests.benchmarks.pipelines.references import detections, named_scores, torchvision_crop
from tests.support.models import tiny_vision

_EVERY_CLASS = {"score_threshold": 0.0}
_DETECTION = {"score_threshold": reference.MIN_SCORE}

_KINDS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "ViT": ("ImageClassification", tiny_vision.vit),
    "ResNet": ("ImageClassification", tiny_vision.resnet),
    "DETR": ("ObjectDetection", tiny_vision.detr),
    "YOLOS": ("ObjectDetection", tiny_vision.yolos),
    "RT-DETR": ("ObjectDetection", tiny_vision.rt_detr),
    "D-FINE": ("ObjectDetection", tiny_vision.d_fine),
    "SegFormer": ("SemanticSegmentation", tiny_vision.segformer),
}


def transformers_families(folder: Path) -> Iterator[Family]:
    """Yield exported models, compared with the processor, the model and the post-processing."""
    transformers = importlib.import_module("transformers")
    for name, (kind, make) in _KINDS.items():
        source = make(folder / name)
        model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(source).eval()
        processor = transformers.AutoImageProcessor.from_pretrained(source, backend="pil")
        path = export_model(source, folder / f"{name}.onnx", 17, 1e-3).file
        parameters = _DETECTION if kind == "ObjectDetection" else _EVERY_CLASS
        expected = partial(_predicted_by_transformers, kind, model, processor)
        yield Family(f"transformers {name}", "transformers, Pillow backend", path, expected, parameters)


def _predicted_by_transformers(kind: str, model: Any, processor: Any, pixels: Pixels) -> Answer:
    """Run the processor, the model and the processor's post-processing."""
    torch: Any = importlib.import_module("torch")
    image = Pillow.fromarray(pixels)
    with torch.no_grad():
        output = model(pixel_values=processor(image, return_tensors="pt")["pixel_values"])
    names, sizes = model.config.id2label, [pixels.shape[:2]]
    if kind == "ImageClassification":
        return named_scores(output.logits.softmax(-1)[0].numpy(), names)
    if kind == "SemanticSegmentation":
        (numbers,) = processor.post_process_semantic_segmentation(output, target_sizes=sizes)
        found = numbers.unique().tolist()
        masks = [(numbers == number).numpy() for number in found]
        return Answer(labels=[names[number] for number in found], masks=masks)
    (objects,) = processor.post_process_object_detection(output, threshold=reference.MIN_SCORE, target_sizes=sizes)
    labels = [names[number] for number in objects["labels"].tolist()]
    return detections(labels, objects["scores"].numpy(), objects["boxes"].numpy(), pixels)


def timm_family(folder: Path) -> Family:
    """Return an exported classifier with a configuration of timm, compared with the steps of timm's transform."""
    source = tiny_vision.vit(folder / "timm")
    file = export_model(source, folder / "timm.onnx", 17, 1e-3).file
    labels = json.loads((file.parent / "config.json").read_text())["id2label"]
    for other in file.parent.glob("*.json"):
        other.unlink()
    config = {"input_size": [3, 32, 32], "crop_pct": 0.875, "interpolation": "bicubic"}
    config |= {"mean": [0.5] * 3, "std": [0.5] * 3}
    label_names = [labels[str(number)] for number in range(len(labels))]
    (file.parent / "config.json").write_text(json.dumps({"pretrained_cfg": config, "label_names": label_names}))
    session = reference.load(file)

    def expected(pixels: Pixels) -> Answer:
        crop = torchvision_crop(pixels, math.floor(32 / 0.875), 32, Pillow.Resampling.BICUBIC)
        batch = ((crop.transpose(2, 0, 1)[np.newaxis] / 255 - 0.5) / 0.5).astype(np.float32)
        logits = reference.run(session, pixel_values=batch)[0][0]
        powers = np.exp(logits - logits.max())
        return named_scores(powers / powers.sum(), label_names)

    return Family("timm ViT", "steps of timm, Pillow", file, expected, _EVERY_CLASS)
