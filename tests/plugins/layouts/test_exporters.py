"""Compare detectors that torchvision and effdet export with these libraries themselves."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from tasks.vision.image import Image
from tests.core.runtimes.onnxruntime.answers import detect
from tests.plugins.transformers.torch.asking import pil_image, scene
from tests.support.models import tiny_models
from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT

RUN = """
import json, sys
from pathlib import Path
sys.path.append(sys.argv[1])
from tests.plugins.layouts import test_exporters
found = getattr(test_exporters, sys.argv[2])(Path(sys.argv[3]))
print(json.dumps([[labels, *(array.tolist() for array in arrays)] for labels, *arrays in found]))
"""
LABELS = ["cat", "dog", "fox"]
FLOOR = 0.05

Found = tuple[list[str], NDArray[Any], NDArray[Any]]
"""Labels, scores and boxes, xyxy in image pixels."""


def with_operators() -> Any:
    """Return torch, with a suppression that torchvision's build for CUDA cannot load into a torch for CPUs."""
    torch = tiny_models.torch()
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    def suppress(boxes: Any, scores: Any, iou_threshold: float) -> Any:
        order, kept = scores.argsort(descending=True, stable=True), []
        areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        while len(order):
            first, order = order[0], order[1:]
            kept.append(first)
            low, high = (
                torch.maximum(boxes[first, :2], boxes[order, :2]),
                torch.minimum(boxes[first, 2:], boxes[order, 2:]),
            )
            shared = (high - low).clamp(min=0).prod(1)
            order = order[shared / (areas[first] + areas[order] - shared) <= iou_threshold]
        return torch.stack(kept)

    operators.impl("nms", suppress, "CPU")
    boxes: Any = importlib.import_module("torchvision.ops.boxes")
    boxes._assert_has_ops = lambda: None
    torch.manual_seed(0)
    torch.library.kept = operators
    return torch


def export(torch: Any, model: Any, example: Any, file: Path, outputs: list[str], **options: Any) -> None:
    names = {"input_names": ["image"], "output_names": outputs}
    torch.onnx.export(model, (example,), str(file), dynamo=False, opset_version=17, **names, **options)


def torchvision(folder: Path) -> list[Found]:
    """Return what SSDlite of torchvision and its served graph find."""
    torch = with_operators()
    build: Any = importlib.import_module("torchvision.models.detection").ssdlite320_mobilenet_v3_large
    options = {"weights": None, "weights_backbone": None, "num_classes": 4, "score_thresh": FLOOR}
    model = build(**options, detections_per_img=20).eval()
    # Without statistics of images, features vanish, and all scores are equal.
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        model.head(list(model.backbone(torch.rand(2, 3, 320, 320)).values()))
    model.eval()
    for block in model.head.classification_head.module_list:
        torch.nn.init.normal_(block[1].weight, std=0.03)
    sides = {"image": {1: "height", 2: "width"}}
    outputs = ["boxes", "scores", "labels"]
    export(torch, model, [torch.rand(3, 300, 400)], folder / "model.onnx", outputs, dynamic_axes=sides)
    pixels = scene(640, 480)
    with torch.no_grad():
        (own,) = model([torch.from_numpy(pixels).permute(2, 0, 1) / 255])
    expected = [LABELS[number - 1] for number in own["labels"].tolist()]
    found = detect(folder / "model.onnx", Image(pixels), FLOOR, labels=LABELS)
    return [(expected, own["scores"].numpy(), own["boxes"].numpy()), (list(found.labels), found.scores, found.boxes)]


def effdet(folder: Path) -> list[Found]:
    """Return what EfficientDet of effdet and its served graph find."""
    torch = with_operators()
    size, library = (256, 320), importlib.import_module("effdet")
    options = {"pretrained": False, "pretrained_backbone": False, "num_classes": len(LABELS), "image_size": size}
    model = library.create_model("tf_efficientdet_lite0", bench_task="predict", **options).eval()
    torch.nn.init.normal_(model.model.class_net.predict.conv_pw.weight, std=0.5)
    pixels = scene(640, 480)
    steps = importlib.import_module("effdet.data.transforms").transforms_coco_eval(
        size, use_prefetcher=True, fill_color=0
    )
    resized, place = steps(pil_image(pixels), {})
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    image = ((torch.from_numpy(resized) / 255 - mean) / std)[None]
    export(torch, model, image, folder / "model.onnx", ["output"])
    with torch.no_grad():
        own: NDArray[np.float32] = model(image)[0].numpy()
    expected = [LABELS[int(number) - 1] for number in own[:, 5]]
    prepared = {"resize": "pad", "interpolation": "bilinear", "antialias": True, "fill": 0}
    normalised = {"scale": 1 / 255, "mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    settings: dict[str, Any] = {"layout": "detections", "detections": {"background": 0}, "labels": LABELS}
    found = detect(folder / "model.onnx", Image(pixels), 0, preprocessing={**prepared, **normalised}, **settings)
    own[:, :4] *= place["img_scale"]
    return [(expected, own[:, 4], own[:, :4]), (list(found.labels), found.scores, found.boxes)]


@pytest.mark.parametrize("exporter", ["torchvision", "effdet"])
@pytest.mark.verifies("the library's own objects, to 0.0001 and 0.1 pixels", "torchvision", "effdet")
def test_served_graph_finds_what_its_library_finds(exporter: str, tmp_path: Path) -> None:
    (packages,) = python_with("timm").parents[1].glob("lib/python*/site-packages")
    command = [sys.executable, "-W", "ignore", "-c", RUN, str(packages), exporter, str(tmp_path)]
    # Compiled functions of both libraries need the operators that are missing.
    environment = {**os.environ, "PYTORCH_JIT": "0"}
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr
    expected, found = json.loads(process.stdout.splitlines()[-1])
    assert len(set(expected[1])) >= 10
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1], abs=1e-4)
    assert np.allclose(found[2], expected[2], rtol=0, atol=0.1)
