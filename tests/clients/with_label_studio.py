"""Check Label Studio's SDK against a server: ``python -m tests.clients.with_label_studio URL``."""

import base64
import importlib
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tests.clients.checks import ORIENTED, SCENE, SHAPE, run

requests: Any = importlib.import_module("requests")
brush: Any = importlib.import_module("label_studio_sdk.converter.brush")
converters: Any = importlib.import_module("label_studio_sdk.converter")
convert: Any = importlib.import_module("label_studio_sdk.converter.utils")
interface: Any = importlib.import_module("label_studio_sdk.label_interface")

TASK = 7


class Model:
    """A model, its records for an image, and the prediction for the same image in Label Studio."""

    def __init__(
        self, url: str, name: str, image: bytes, tag: str, label_tag: str = "Label", **parameters: Any
    ) -> None:
        encoded = base64.b64encode(image).decode()
        body = {"instances": [{"b64": encoded}], "parameters": parameters}
        answer = requests.post(f"{url}/v1/models/{name}:predict", json=body).json()
        (self.records,) = answer["predictions"]
        labels = sorted({record["label"] for record in self.records})
        self.config = (
            f'<View><Image name="image" value="$image"/><{tag} name="label" toName="image">'
            + "".join(f'<{label_tag} value="{label}"/>' for label in labels)
            + f"</{tag}></View>"
        )
        self.backend = f"{url}/label-studio/{name}"
        self.task = {"id": TASK, "data": {"image": f"data:image/jpeg;base64,{encoded}"}}
        (self.prediction,) = self.predict()
        self.regions = self.prediction["result"]
        assert self.regions, answer
        errors = interface.LabelInterface(self.config).validate_prediction(self.prediction, return_errors=True)
        assert not errors, errors
        self.width, self.height = self.regions[0]["original_width"], self.regions[0]["original_height"]

    def predict(self) -> list[Any]:
        body = {"tasks": [self.task], "project": "1.1", "label_config": self.config, "params": {"context": None}}
        answer = requests.post(f"{self.backend}/predict", json=body)
        answer.raise_for_status()
        return answer.json()["results"]

    def annotations(self) -> list[Any]:
        """Return the annotations of COCO, with the names of their categories, as Label Studio exports them."""
        folder = Path(tempfile.mkdtemp())
        (folder / "image.png").write_bytes(b"")
        task = {"id": TASK, "data": {"image": str(folder / "image.png")}, "annotations": [{"id": 1, **self.prediction}]}
        (folder / "tasks.json").write_text(json.dumps([task]))
        converter = converters.Converter(self.config, str(folder), download_resources=False)
        converter.convert_to_coco(str(folder / "tasks.json"), str(folder / "out"), is_dir=False)
        exported = json.loads((folder / "out" / "result.json").read_text())
        names = {category["id"]: category["name"] for category in exported["categories"]}
        return [{**annotation, "label": names[annotation["category_id"]]} for annotation in exported["annotations"]]

    def assert_near(self, found: Any, expected: Any) -> None:
        """Compare pixels up to a millionth of the image's side."""
        assert np.abs(np.array(found) - np.array(expected)).max() <= 1e-6 * max(self.width, self.height)


def check_boxes(url: str) -> None:
    model = Model(url, "detector", SCENE, "RectangleLabels")
    annotations = model.annotations()
    assert [item["label"] for item in annotations] == [record["label"] for record in model.records]
    for annotation, record in zip(annotations, model.records, strict=True):
        x, y, width, height = annotation["bbox"]
        model.assert_near([x, y, x + width, y + height], [record[name] for name in ("xmin", "ymin", "xmax", "ymax")])
    mean = np.mean([record["score"] for record in model.records])
    assert abs(model.prediction["score"] - mean) < 1e-9


def check_oriented_boxes(url: str) -> None:
    for tag in ("RectangleLabels", "PolygonLabels"):
        model = Model(url, "oriented-detector", ORIENTED, tag)
        for region, record in zip(model.regions, model.records, strict=True):
            label = {**region, **region["value"]}
            found = np.array(
                convert.convert_annotation_to_yolo_obb(label, normalize=False)
                if tag == "RectangleLabels"
                else np.array(label["points"]) / 100 * (model.width, model.height)
            )
            r = record["r"]
            centre = np.array([record["cx"] * model.width, record["cy"] * model.height])
            along = np.array([np.cos(r), np.sin(r)]) * record["w"] * model.width / 2
            across = np.array([-np.sin(r), np.cos(r)]) * record["h"] * model.height / 2
            corners = centre + np.array([-along - across, along - across, along + across, across - along])
            # Any corner may be the first one.
            model.assert_near(min(np.abs(np.roll(found, turn, 0) - corners).max() for turn in range(4)), 0)


def check_polygons(url: str) -> None:
    model = Model(url, "segmenter", SCENE, "PolygonLabels", epsilon=1.0)
    # Without holes, each object is one polygon. Its points are the centres of pixels.
    for annotation, record in zip(model.annotations(), model.records, strict=True):
        points = np.array([[point["x"], point["y"]] for point in record["contour"][0]])
        model.assert_near(np.array(annotation["segmentation"][0]).reshape(-1, 2), points + 0.5)


def check_masks(url: str) -> None:
    model = Model(url, "segmenter", SCENE, "BrushLabels")
    for region, record in zip(model.regions, model.records, strict=True):
        decoded = np.asarray(brush.decode_rle(region["value"]["rle"])).reshape(model.height, model.width, 4)
        rings = [np.array([[[point["x"], point["y"]]] for point in ring], np.int32) for ring in record["contour"]]
        mask = np.zeros((model.height, model.width), np.uint8)
        cv2.fillPoly(mask, rings, 255)
        assert np.array_equal(decoded[:, :, 3], cv2.drawContours(mask, rings, -1, 255, 1))


def check_classes(url: str) -> None:
    model = Model(url, "classifier", SHAPE, "Choices", "Choice")
    assert model.regions[0]["value"]["choices"] == [model.records[0]["label"]]


def check_health_and_setup_answer_in_time_under_load(url: str) -> None:
    model = Model(url, "detector", SCENE, "RectangleLabels")
    body = {"project": "1.1", "schema": model.config, "hostname": "", "access_token": "", "extra_params": None}
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(model.predict) for _ in range(40)]
        rounds = 0
        while not all(job.done() for job in jobs):
            # Label Studio waits as long.
            assert requests.get(f"{model.backend}/health", timeout=(1, 1)).json()["status"] == "UP"
            setup = requests.post(f"{model.backend}/setup", json=body, timeout=(1, 3))
            assert setup.json()["model_version"] == model.prediction["model_version"]
            rounds += 1
        assert all(len(job.result()) == 1 for job in jobs)
    assert rounds > 1


if __name__ == "__main__":
    run(globals(), sys.argv[1])
