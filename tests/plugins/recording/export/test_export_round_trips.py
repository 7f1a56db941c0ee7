"""Exports are read back by evaluation and as stores."""

import hashlib
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest

from app.core.settings.server import SettingsError
from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.datasets.read import DatasetOptions, read_dataset
from app.plugins.recording.export.writing import Format, export_inferences
from app.plugins.recording.images import ImageFile, ImageFolder, image_path
from app.plugins.recording.inference import Exported, RecordedImage, RecordedInference, Truth
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import open_recordings
from tasks.task import TaskType
from tests.support.data.recorded_rows import Value, matching_ids, metadata_entry, recorded_inference

WIDTH, HEIGHT = 200, 100
WRONG = Truth(verdict="wrong", records=[{"label": "cat"}], source="coco", comment="clear")
BOX: dict[str, object] = {"label": "car", "score": 0.5, "xmin": 10.0, "ymin": 20.0, "xmax": 30.0, "ymax": 60.0}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder with three stored images."""
    ImageFolder(tmp_path / "images", durable=False).write([ImageFile(digest(i), png(i)) for i in range(3)])
    return tmp_path / "images"


def png(number: int) -> bytes:
    return cv2.imencode(".png", np.full((HEIGHT, WIDTH, 3), number, np.uint8))[1].tobytes()


def digest(number: int) -> str:
    return hashlib.sha256(png(number)).hexdigest()


def inference(number: int, task_type: TaskType, *records: dict[str, object], **fields: Any) -> RecordedInference:
    image = RecordedImage(digest=digest(number), width=WIDTH, height=HEIGHT, size=len(png(number)), kept=True)
    values: dict[str, Any] = {"name": f"{number}-0-0", "started": number, "image": image, "records": list(records)}
    return recorded_inference(**{**values, "task_type": str(task_type), **fields})


def objects(items: tuple[Item, ...]) -> dict[str, list[tuple[str, Any]]]:
    """Return label and rounded corners of the objects, by the digest of their image."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for item in items:
        corners = [
            (label.label, np.round(np.array(label.box or label.outlines[0]), 2).tolist()) for label in item.objects
        ]
        found[hashlib.sha256(item.image.read_bytes()).hexdigest()] = corners
    return found


@pytest.mark.parametrize("file_format", ["coco", "yolo"])
def test_boxes_are_read_back_by_evaluation(tmp_path: Path, images: Path, file_format: Format) -> None:
    inferences = [
        inference(2, TaskType.OBJECT_DETECTION, BOX, BOX | {"label": "dog", "xmin": 0.0}),
        inference(1, TaskType.OBJECT_DETECTION),
        inference(0, TaskType.IMAGE_CLASSIFICATION, {"label": "a", "score": 1.0}),
    ]
    path = tmp_path / ("found.json" if file_format == "coco" else "found")
    assert export_inferences([inferences], path, file_format, images=images) == Exported(written=2, left_out=1)
    options = DatasetOptions(images=images if file_format == "coco" else None, task=TaskType.OBJECT_DETECTION)
    assert objects(read_dataset(path, options).items) == {
        digest(2): [("car", [10, 20, 30, 60]), ("dog", [0, 20, 30, 60])],
        digest(1): [],
    }


def bar(cx: float, w: float, r: float) -> dict[str, object]:
    return {"label": "bar", "score": 1.0, "cx": cx, "cy": 0.5, "w": w, "h": 0.1, "r": r}


def test_oriented_boxes_are_read_back_from_yolo(tmp_path: Path, images: Path) -> None:
    turned = inference(0, TaskType.ORIENTED_OBJECT_DETECTION, bar(0.5, 0.2, math.pi / 2))
    export_inferences([[turned]], tmp_path / "y", "yolo", images=images)
    dataset = read_dataset(tmp_path / "y")
    assert dataset.tasks[0] == TaskType.ORIENTED_OBJECT_DETECTION
    ((label,),) = (item.objects for item in dataset.items)
    assert (label.label, sorted(np.round(label.outlines[0], 2).tolist())) == (
        "bar",
        [[95, 30], [95, 70], [105, 30], [105, 70]],
    )


def test_oriented_box_beyond_the_image_is_reported(tmp_path: Path, images: Path) -> None:
    inferences = [inference(0, TaskType.ORIENTED_OBJECT_DETECTION, bar(0.1, 0.4, 0.5), bar(0.5, 0.4, 0.5))]
    exported = export_inferences([inferences], tmp_path / "y", "yolo", images=images)
    changed = {"cut off at the border of the image, so no rectangle: YOLO has no corners outside": 1}
    assert exported.changed_objects == changed


def test_longest_outline_is_read_back_from_yolo(tmp_path: Path, images: Path) -> None:
    outline = [{"x": float(x), "y": float(y)} for x, y in ((9, 9), (49, 9), (59, 29), (49, 49), (9, 49))]
    hole = [{"x": float(x), "y": float(y)} for x, y in ((20, 20), (30, 20), (30, 30))]
    record: dict[str, object] = {"label": "a", "score": 1.0, "contour": [outline, hole]}
    export_inferences([[inference(0, TaskType.IMAGE_SEGMENTATION, record)]], tmp_path / "y", "yolo", images=images)
    (item,) = read_dataset(tmp_path / "y").items
    assert [np.round(ring, 2).tolist() for ring in item.objects[0].rings or ()] == [
        [[9.5, 9.5], [49.5, 9.5], [59.5, 29.5], [49.5, 49.5], [9.5, 49.5]]
    ]


def test_yolo_has_each_stored_image_once_and_one_task(tmp_path: Path, images: Path) -> None:
    missing = RecordedImage(digest="ab" * 32, width=1, height=1, size=1, kept=True)
    inferences = [
        inference(0, TaskType.OBJECT_DETECTION, BOX),
        inference(0, TaskType.OBJECT_DETECTION, name="older-0-0"),
        inference(1, TaskType.IMAGE_SEGMENTATION, {"label": "a", "score": 1.0, "contour": []}),
        inference(2, TaskType.OBJECT_DETECTION, BOX, image=missing),
        inference(2, TaskType.OBJECT_DETECTION, BOX, image=None),
    ]
    assert export_inferences([inferences], tmp_path / "y", "yolo", images=images) == Exported(written=1, left_out=4)
    assert [file.name for file in (tmp_path / "y" / "images").iterdir()] == [f"{digest(0)}.png"]
    with pytest.raises(SettingsError, match="Expected a new folder"):
        export_inferences([inferences], tmp_path / "y", "yolo", images=images)
    for missing in (None, tmp_path / "missing"):
        with pytest.raises(SettingsError, match=rf"needs --images, .*, got {missing or 'none'}"):
            export_inferences([inferences], tmp_path / "z", "yolo", images=missing)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "y"]


@pytest.mark.parametrize("file_format", ["coco", "yolo"])
def test_objects_that_are_left_out_are_counted_by_reason(tmp_path: Path, images: Path, file_format: Format) -> None:
    def outline(x: float) -> list[dict[str, float]]:
        return [{"x": x, "y": 9.0}, {"x": x + 40, "y": 9.0}, {"x": x + 40, "y": 60.0}]

    segment: dict[str, object] = {"label": "a", "score": 1.0, "contour": [outline(9)]}
    large = RecordedImage(digest=digest(1), width=1 << 15, height=1 << 14, size=1, kept=True)
    contours = ([outline(9), outline(90)], "[redacted]", [outline(900)], [outline(9)[:2]])
    records = [segment, segment | {"score": "[redacted]"}, *(segment | {"contour": contour} for contour in contours)]
    inferences = [
        inference(0, TaskType.IMAGE_SEGMENTATION, *records),
        inference(1, TaskType.IMAGE_SEGMENTATION, segment, image=large),
    ]
    exported = export_inferences([inferences], tmp_path / "found", file_format, images=images)
    expected = {
        "left out: a label, score or place that cannot be read, such as a redacted one": 2,
        "left out: no outline inside the image": 1,
        "left out: an outline in an image of more than 268,435,456 pixels": 1,
    }
    if file_format == "yolo":
        expected["left out: YOLO needs outlines of three points"] = 1
        expected["written with the longest outline only: YOLO has neither holes nor several parts"] = 1
    assert exported == Exported(written=2, changed_objects=expected)


def test_damaged_file_is_left_out_of_yolo_and_photo_of_several_images_is_read(tmp_path: Path, images: Path) -> None:
    image_path(images, digest(0)).write_bytes(b"damaged")
    photo = PIL.Image.new("RGB", (WIDTH, HEIGHT))
    photo.save(image_path(images, digest(1)), "MPO", save_all=True, append_images=[photo])
    inferences = [inference(number, TaskType.OBJECT_DETECTION, BOX) for number in (0, 1)]
    assert export_inferences([inferences], tmp_path / "y", "yolo", images=images) == Exported(written=1, left_out=1)
    assert [item.id for item in read_dataset(tmp_path / "y").items] == [f"images/{digest(1)}.jpg"]


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_complete_export_is_read_back_as_a_store(tmp_path: Path, images: Path, file_format: Format) -> None:
    values: dict[str, Value] = {"camera": "north", "height": 12.5, "count": 2**70, "lens": {"mm": 35}}
    entries = [metadata_entry(*pair) for pair in values.items()]
    inferences = [
        inference(2, TaskType.OBJECT_DETECTION, BOX, metadata=entries),
        inference(1, TaskType.OBJECT_DETECTION, parameters={"top_k": 3}, image=None, reason="unsure", truth=WRONG),
        recorded_inference("x", started=0, records=None, error="internal", message='a "b"\n', probability=0.25),
    ]
    file = tmp_path / f"found.{file_format}"
    export_inferences([inferences], file, file_format)
    reader = open_recordings(str(file), images)
    assert reader.page(InferenceQuery(), 10).inferences == inferences
    assert matching_ids(reader, InferenceQuery(where=['camera = "north"'], label="car")) == {"2-0-0"}
    assert reader.image(inferences[0]) == png(2)


def test_file_of_something_else_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("text")
    (tmp_path / "questions.jsonl").write_text('{"image": "a.jpg"}\n')
    (tmp_path / "found.coco.json").write_text("{}")
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    parquet.write_table(arrow.table({"id": ["a"]}), tmp_path / "other.parquet")
    for name, message in (
        ("text.parquet", "is not a Parquet file"),
        ("other.parquet", "Expected the columns of an export of inferences, without base_id"),
        ("questions.jsonl", "Expected one recorded inference on each line"),
        ("found.coco.json", r"COCO is for annotation tools .*; export \.jsonl or \.parquet"),
    ):
        with pytest.raises(SettingsError, match=message):
            open_recordings(str(tmp_path / name))


@pytest.mark.parametrize(
    ("column", "value", "field"),
    [
        ("parameters", None, "parameters"),
        ("records", "{", "records"),
        ("records", '[{"score":1' + "0" * 400 + "}]", r"records\[0\].score"),
        ("started", "soon", "started"),
        ("image_width", 2**40, "image_width"),
        ("image_height", -5, "image.height"),
        ("metadata", [None], "metadata"),
        ("metadata", [{"key": "k", "type": "float", "int": None, "float": math.inf, "text": None}], "metadata"),
    ],
)
def test_edited_parquet_is_rejected_with_its_field(tmp_path: Path, column: str, value: object, field: str) -> None:
    file = tmp_path / "found.parquet"
    export_inferences([[inference(0, TaskType.OBJECT_DETECTION, BOX)]], file, "parquet")
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    table = parquet.read_table(file)
    kept = table.schema.field(column).type if column == "metadata" else None
    index = table.schema.names.index(column)
    parquet.write_table(table.set_column(index, column, arrow.array([value], kept)), file)
    with pytest.raises(SettingsError, match=rf"found\.parquet: (row 1: )?Expected the values .*{field}"):
        open_recordings(str(file))


def test_joined_exports_may_overlap(tmp_path: Path) -> None:
    inferences = [inference(index, TaskType.OBJECT_DETECTION, BOX) for index in (2, 1, 0)]
    for name, part in (("new", inferences[:2]), ("old", inferences[1:])):
        export_inferences([part], tmp_path / f"{name}.jsonl", "jsonl")
    (tmp_path / "all.jsonl").write_bytes(b"".join((tmp_path / f"{name}.jsonl").read_bytes() for name in ("new", "old")))
    assert open_recordings(str(tmp_path / "all.jsonl")).page(InferenceQuery(), 10).inferences == inferences


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"started":1', f'"started":{2**63}', "started"),
        ('"width":200', '"width":-200', "image.width"),
        ('"score":0.5', '"score":1' + "0" * 400, r"records\[0\].score"),
        ('"xmin":10.0', '"xmin":-1.7e308', r"records\[0\].xmin"),
        ('"score":0.5', '"score":NaN', "malformed"),
        ('"label":"car"', '"label":' + "[" * 100_000, "recursion depth"),
        ('"message":""', '"message":1', "message"),
        ("}\n", "", "truncated"),
    ],
)
def test_edited_jsonl_is_rejected_with_line_and_field(tmp_path: Path, old: str, new: str, field: str) -> None:
    file = tmp_path / "found.jsonl"
    export_inferences([[inference(index, TaskType.OBJECT_DETECTION, BOX) for index in range(2)]], file, "jsonl")
    first, second = file.read_text().splitlines(keepends=True)
    assert old in second
    file.write_text(first + second.replace(old, new))
    with pytest.raises(SettingsError, match=rf"found\.jsonl: line 2: Expected one recorded inference .*{field}"):
        open_recordings(str(file))
