"""Faults in what is said of pictures, which are planted in both of Chariot's protocols alike."""

import base64
import itertools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import cv2
import httpx
import numpy as np

from app.conformance.pictures import PLAIN
from tests.app.conformance.engines import BARS, Fault, Rewrite, Spoil
from tests.app.conformance.planted.spoiling import body

Item = dict[str, Any]

_JPEG = b"\xff\xd8"


def lists_in(answer: Any) -> Sequence[list[Item]]:
    """The list of items for each picture."""
    if not isinstance(answer, dict):
        return []
    said = cast("Item", answer)
    if "output" in said:
        return [said["output"]]
    return [output["data"][0] for output in said.get("outputs", ()) if output["data"]]


def images_in(request: httpx.Request) -> Sequence[bytes]:
    """The encoded pictures that a request is about."""
    if request.headers.get("content-type", "").startswith("image/"):
        return [request.content]
    try:
        said: Any = json.loads(request.content)
        texts = [said["input"]] if "input" in said else [each["data"][0] for each in said["inputs"]]
        return [base64.b64decode(each) for each in texts]
    except (KeyError, TypeError, ValueError):
        return []


def all_items(change: Callable[[list[Item]], object]) -> Spoil:
    """A fault in every list of items."""

    def spoil(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200:
            for found in lists_in(answer):
                change(found)
        return status, answer

    return spoil


def items(change: Callable[[Item], object]) -> Spoil:
    """A fault in every item."""

    def change_all(found: list[Item]) -> None:
        for item in found:
            change(item)

    return all_items(change_all)


def sized(change: Callable[[Item, int, int], object]) -> Spoil:
    """A fault in every item that has to do with the size of the image: item, width, height."""

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200:
            for image, found in zip(images_in(request), lists_in(answer), strict=False):
                decoded = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
                height, width = np.asarray(decoded).shape[:2]
                for item in found:
                    change(item, width, height)
        return status, answer

    return spoil


def scaled(item: Item, across: float, down: float, names: str = "xmin ymin xmax ymax") -> None:
    for index, name in enumerate(names.split()):
        item[name] *= down if index % 2 else across


def scaled_points(item: Item, across: float, down: float) -> None:
    for contour in item["contour"]:
        for point in contour:
            scaled(point, across, down, "x y")


def moved_points(item: Item) -> None:
    for contour in item["contour"]:
        for point in contour:
            point["x"] -= 700


def refusing(chosen: Callable[[bytes], bool]) -> Spoil:
    """An engine that has no decoder for some pictures."""

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        return (500, {"error": "no"}) if any(map(chosen, images_in(request))) else (status, answer)

    return spoil


def is_png(depth: int, colours: int) -> Callable[[bytes], bool]:
    """Whether a picture is a PNG of so many bits, and of the colour type (PNG, 11.2.2)."""
    return lambda image: image[1:4] == b"PNG" and (image[24], image[25]) == (depth, colours)


def drifting(request: httpx.Request, seen: dict[bytes, int]) -> float:
    """How much lower scores are each time that a JPEG is asked about again."""
    seen[request.content] = seen.get(request.content, -1) + 1
    return 0.2 * seen[request.content] if any(each.startswith(_JPEG) for each in images_in(request)) else 0


def forgetful() -> Spoil:
    """Another answer each time."""
    seen: dict[bytes, int] = {}

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        less = drifting(request, seen)
        for item in itertools.chain.from_iterable(lists_in(answer)):
            item["score"] -= less
        return status, answer

    return spoil


def unturned(said: Item) -> None:
    """EXIF is cut off."""
    if "input" in said:
        said["input"] = _unturned(said["input"])
    for given in said.get("inputs", ()):
        given["data"][0] = _unturned(given["data"][0])


def _unturned(text: str) -> str:
    try:
        image = base64.b64decode(text, validate=True)
    except ValueError:
        return text
    if image[:4] != _JPEG + b"\xff\xe1":
        return text
    length = int.from_bytes(image[4:6], "big")
    return base64.b64encode(_JPEG + image[4 + length :]).decode()


def without_threshold(said: dict[str, Any]) -> None:
    for holder in (said, *said.get("inputs", ())):
        if isinstance(holder.get("parameters"), dict) and isinstance(
            holder["parameters"].get("score_threshold"), float
        ):
            del holder["parameters"]["score_threshold"]


def twice(found: list[Item]) -> None:
    found[1:1] = found[:1]


SPOILT: dict[str, tuple[str, str, Spoil]] = {
    "missing corner": ("detector", "I01", items(lambda item: item.pop("ymax"))),
    "label of numbers": ("detector", "I02", items(lambda item: item.update(label=3))),
    "score of text": ("detector", "I03", items(lambda item: item.update(score=str(item["score"])))),
    "score of text, classes": ("classifier", "I03", items(lambda item: item.update(score=str(item["score"])))),
    "score in per cent": ("detector", "I04", items(lambda item: item.update(score=item["score"] * 100))),
    "worst first": ("detector", "I05", all_items(lambda found: found.reverse())),
    "a label twice": ("classifier", "I07", all_items(twice)),
    "answer that is a list": ("vlm", "I08", items(lambda item: item.update(answer=[item["answer"]]))),
    "prompts not given back": ("vlm", "I09", items(lambda item: item.update(prompt="?"))),
    "no JPEG": ("detector", "I11", refusing(lambda image: image.startswith(_JPEG))),
    "no grey": ("detector", "I12", refusing(is_png(8, 0))),
    "no alpha": ("detector", "I13", refusing(is_png(8, 6))),
    "no sixteen bits": ("detector", "I14", refusing(is_png(16, 2))),
    "nothing is an error": ("detector", "I16", refusing(lambda image: image == PLAIN.data)),
    "corners of text": ("detector", "P01", items(lambda item: item.update(xmin=str(item["xmin"])))),
    "normalised boxes": ("detector", "P02", sized(lambda item, w, h: scaled(item, 1 / w, 1 / h))),
    "boxes of the model's own frame": ("detector", "P03", sized(lambda item, w, h: scaled(item, 320 / w, 320 / h))),
    "left and right": ("detector", "P04", items(lambda item: item.update(xmin=item["xmax"], xmax=item["xmin"]))),
    "boxes outside": (
        "detector",
        "P05",
        sized(lambda item, w, _: item.update(xmin=item["xmin"] + w, xmax=item["xmax"] + w)),
    ),
    "turned boxes of text": ("oriented-detector", "P06", items(lambda item: item.update(r=str(item["r"])))),
    "turned boxes in pixels": ("oriented-detector", "P07", sized(lambda item, w, h: scaled(item, w, h, "cx cy w h"))),
    "degrees": ("oriented-detector", "P08", items(lambda item: item.update(r=math.degrees(item["r"])))),
    "the other way round": (BARS, "P09", items(lambda item: item.update(r=-item["r"]))),
    "negative sides": ("oriented-detector", "P10", items(lambda item: item.update(w=-item["w"]))),
    "flat contour": ("segmenter", "P11", items(lambda item: item.update(contour=item["contour"][0]))),
    "points of lists": (
        "segmenter",
        "P11",
        items(lambda item: item.update(contour=[[[p["x"], p["y"]] for p in c] for c in item["contour"]])),
    ),
    "normalised contours": ("segmenter", "P12", sized(lambda item, w, h: scaled_points(item, 1 / w, 1 / h))),
    "contours of the model's own frame": (
        "segmenter",
        "P13",
        sized(lambda item, w, h: scaled_points(item, 320 / w, 320 / h)),
    ),
    "contours outside": ("segmenter", "P14", items(moved_points)),
}
"""The model that an answer is spoilt of, the clause that names it, and how."""

TAKEN: dict[str, tuple[str, str, Rewrite]] = {
    "a threshold passed over": ("detector", "I06", body(without_threshold)),
    "EXIF passed over": ("detector", "I10", body(unturned)),
}
"""The model that a request is taken wrongly by, the clause that names it, and how."""


def faults(protocol: str, prefix: str) -> dict[str, Fault]:
    """All of them in `protocol`, whose clauses are numbered under `prefix`."""
    made = {
        name: Fault(protocol=protocol, model=model, clause=f"{prefix}-{clause}", spoil=spoil)
        for name, (model, clause, spoil) in SPOILT.items()
    }
    for name, (model, clause, rewrite) in TAKEN.items():
        made[name] = Fault(protocol=protocol, model=model, clause=f"{prefix}-{clause}", rewrite=rewrite)
    made["forgetful"] = Fault(protocol=protocol, model="detector", clause=f"{prefix}-I15", spoil=forgetful())
    return made
