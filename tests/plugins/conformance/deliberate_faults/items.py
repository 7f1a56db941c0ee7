"""Deliberate faults in predictions, over chariot-v2; chariot-v2-kserve has the same checks of items."""

import base64
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import httpx
import numpy as np

from app.plugins.conformance.sample_images import BLANK_IMAGE
from tests.plugins.conformance.deliberate_faults.spoiling import change_body, change_each, replace_field
from tests.plugins.conformance.engines import BARS, AnswerFault, AnswerFaults, RequestFaults, faults_of

Item = dict[str, Any]

_JPEG = b"\xff\xd8"


def image_in(request: httpx.Request) -> bytes:
    """Return the encoded image of a request; empty if it has none."""
    if request.headers.get("content-type", "").startswith("image/"):
        return request.content
    try:
        return base64.b64decode(json.loads(request.content)["input"])
    except (KeyError, TypeError, ValueError):
        return b""


change_items = partial(change_each, "output")


def change_sized_items(change: Callable[[Item, int, int], object]) -> AnswerFault:
    """Change every item, given the width and height of its image."""

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and (image := image_in(request)):
            decoded = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
            height, width = np.asarray(decoded).shape[:2]
            for item in answer["output"]:
                change(item, width, height)
        return status, answer

    return fault


def scale(item: Item, across: float, down: float, names: str = "xmin ymin xmax ymax") -> None:
    for index, name in enumerate(names.split()):
        item[name] *= down if index % 2 else across


def change_points(item: Item, change: Callable[[Item], object]) -> None:
    for contour in item["contour"]:
        for point in contour:
            change(point)


def scale_points(item: Item, across: float, down: float) -> None:
    change_points(item, lambda point: scale(point, across, down, "x y"))


def letterbox(item: Item, width: int, height: int) -> None:
    """Leave the coordinates in the square that the image was padded to."""
    side = max(width, height)
    across, down = (side - width) / 2, (side - height) / 2
    item.update(xmin=item["xmin"] + across, xmax=item["xmax"] + across)
    item.update(ymin=item["ymin"] + down, ymax=item["ymax"] + down)


def nest_box(item: Item) -> None:
    item["box"] = {name: item.pop(name) for name in ("xmin", "ymin", "xmax", "ymax")}


def coco_box(item: Item) -> None:
    xmin, ymin, xmax, ymax = (item.pop(name) for name in ("xmin", "ymin", "xmax", "ymax"))
    item["bbox"] = [xmin, ymin, xmax - xmin, ymax - ymin]


def exchange_axes(item: Item) -> None:
    item.update(xmin=item["ymin"], xmax=item["ymax"], ymin=item["xmin"], ymax=item["xmax"])


def reject_images(matches: Callable[[bytes], bool]) -> AnswerFault:
    """Reject the images that match, as an engine without their decoder does."""

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        return (500, {"error": "no"}) if matches(image_in(request)) else (status, answer)

    return fault


def is_png(depth: int, colours: int) -> Callable[[bytes], bool]:
    """Return a matcher of PNG images by bit depth and colour type (PNG, 11.2.2)."""
    return lambda image: image[1:4] == b"PNG" and (image[24], image[25]) == (depth, colours)


def unstable_scores() -> AnswerFault:
    """Return lower scores each time that a request with a JPEG repeats."""
    seen: list[bytes] = []

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if image_in(request).startswith(_JPEG) and "output" in answer:
            for item in answer["output"]:
                item["score"] -= 0.2 * seen.count(request.content)
            seen.append(request.content)
        return status, answer

    return fault


def without_exif(body: Item) -> None:
    try:
        image = base64.b64decode(body["input"], validate=True)
    except (KeyError, ValueError):
        return
    if image.startswith(_JPEG + b"\xff\xe1"):
        body["input"] = base64.b64encode(_JPEG + image[4 + int.from_bytes(image[4:6], "big") :]).decode()


def without_threshold(body: Item) -> None:
    if isinstance(body.get("parameters", {}).get("score_threshold"), float):
        del body["parameters"]["score_threshold"]


ANSWER_FAULTS: AnswerFaults = {
    "missing corner": ("CV2-I01", change_items(lambda item: item.pop("ymax"))),
    "Hugging Face's boxes": ("CV2-I01", change_items(nest_box)),
    "COCO's boxes": ("CV2-I01", change_items(coco_box)),
    "class ids": ("CV2-I17", change_items(lambda item: item.update(class_id=1))),
    "label of numbers": ("CV2-I02", change_items(lambda item: item.update(label=3))),
    "score of text": ("CV2-I03", change_items(lambda item: item.update(score=str(item["score"])))),
    "score in per cent": ("CV2-I04", change_items(lambda item: item.update(score=item["score"] * 100))),
    "worst first": ("CV2-I05", replace_field("output", lambda items: items[::-1])),
    "a label twice": ("CV2-I07", replace_field("output", lambda items: items[:1] + items), "classifier"),
    "answer that is a list": ("CV2-I08", change_items(lambda item: item.update(answer=[item["answer"]])), "vlm"),
    "prompts not returned": ("CV2-I09", change_items(lambda item: item.update(prompt="?")), "vlm"),
    "no JPEG": ("CV2-I11", reject_images(lambda image: image.startswith(_JPEG))),
    "no grey": ("CV2-I12", reject_images(is_png(8, 0))),
    "no alpha": ("CV2-I13", reject_images(is_png(8, 6))),
    "no sixteen bits": ("CV2-I14", reject_images(is_png(16, 2))),
    "plain image is an error": ("CV2-I16", reject_images(lambda image: image == BLANK_IMAGE.data)),
    "corners of text": ("CV2-P01", change_items(lambda item: item.update(xmin=str(item["xmin"])))),
    "normalised boxes": ("CV2-P02", change_sized_items(lambda item, w, h: scale(item, 1 / w, 1 / h))),
    "boxes of the model's own frame": ("CV2-P03", change_sized_items(lambda item, w, h: scale(item, 320 / w, 320 / h))),
    "left and right swapped": ("CV2-P04", change_items(lambda item: item.update(xmin=item["xmax"], xmax=item["xmin"]))),
    "boxes outside": ("CV2-P05",
        change_items(lambda item: item.update(xmin=item["xmin"] + 700, xmax=item["xmax"] + 700))),
    "y from the bottom": ("CV2-P15",
        change_sized_items(lambda item, _, h: item.update(ymin=h - item["ymax"], ymax=h - item["ymin"]))),
    "x from the right": ("CV2-P15",
        change_sized_items(lambda item, w, _: item.update(xmin=w - item["xmax"], xmax=w - item["xmin"]))),
    "x and y exchanged": ("CV2-P15", change_items(exchange_axes)),
    "boxes of the padded image": ("CV2-P15", change_sized_items(letterbox)),
    "rotations of text": ("CV2-P06",
        change_items(lambda item: item.update(r=str(item["r"]))), "oriented-detector"),
    "oriented boxes in pixels": ("CV2-P07",
        change_sized_items(lambda item, w, h: scale(item, w, h, "cx cy w h")), "oriented-detector"),
    "oriented boxes from the bottom": ("CV2-P16",
        change_items(lambda item: item.update(cy=1 - item["cy"])), "oriented-detector"),
    "cx and cy exchanged": ("CV2-P16",
        change_items(lambda item: item.update(cx=item["cy"], cy=item["cx"])), "oriented-detector"),
    "degrees": ("CV2-P08", change_items(lambda item: item.update(r=math.degrees(item["r"]))), "oriented-detector"),
    "counter-clockwise rotation": ("CV2-P09", change_items(lambda item: item.update(r=-item["r"])), BARS),
    "negative sides": ("CV2-P10", change_items(lambda item: item.update(w=-item["w"])), "oriented-detector"),
    "flat contour": ("CV2-P11", change_items(lambda item: item.update(contour=item["contour"][0])), "segmenter"),
    "points of lists": (
        "CV2-P11",
        change_items(lambda item: item.update(contour=[[[p["x"], p["y"]] for p in c] for c in item["contour"]])),
        "segmenter",
    ),
    "normalised contours": ("CV2-P12",
        change_sized_items(lambda item, w, h: scale_points(item, 1 / w, 1 / h)), "segmenter"),
    "contours of the model's own frame": ("CV2-P13",
        change_sized_items(lambda item, w, h: scale_points(item, 320 / w, 320 / h)), "segmenter"),
    "contours from the bottom": ("CV2-P17",
        change_sized_items(lambda item, _, h: change_points(item, lambda p: p.update(y=h - p["y"]))), "segmenter"),
    "x and y of contours exchanged": ("CV2-P17",
        change_items(lambda item: change_points(item, lambda p: p.update(x=p["y"], y=p["x"]))), "segmenter"),
    "contours outside": ("CV2-P14",
        change_items(lambda item: change_points(item, lambda p: p.update(x=p["x"] - 700))), "segmenter"),
    "unstable scores": ("CV2-I15", unstable_scores()),
}  # fmt: skip

REQUEST_FAULTS: RequestFaults = {
    "threshold ignored": ("CV2-I06", change_body(without_threshold)),
    "EXIF ignored": ("CV2-I10", change_body(without_exif)),
}
FAULTS = {
    **faults_of("chariot-v2", "detector", ANSWER_FAULTS),
    **faults_of("chariot-v2", "detector", REQUEST_FAULTS, "change_request"),
}
