"""Exports, read back by the tools that they are for."""

import csv
import json
import math
import stat
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.recording.export.writing import Exported, Format, export, format_of
from app.recording.inference import RecordedImage, RecordedInference
from app.settings.server import SettingsError
from metadata.entry import MetadataEntry
from tasks.task import TaskType
from tasks.vision.contours import contours_of_mask

# Its types say less than it reads, such as scores.
COCO: Any = import_module("pycocotools.coco").COCO

# Of pycocotools, where it decodes masks under numpy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

IMAGE = RecordedImage(digest="ab" * 32, width=200, height=100, size=1000)


def inference(name: str = "a-0-0", **fields: Any) -> RecordedInference:
    plain: dict[str, Any] = {
        "protocol": "kserve-v2",
        "model": "m",
        "started": 1_500_000,
        "duration": 2500,
        "records": [],
        "metadata": [],
    }
    return RecordedInference(id=name, **(plain | fields))


def detected(kind: TaskType, *records: dict[str, object], **fields: Any) -> RecordedInference:
    return inference(task_type=kind.value, records=list(records), image=IMAGE, **fields)


def write(path: Path, *batches: Sequence[RecordedInference], form: Format | None = None) -> Exported:
    return export(batches, path, form or format_of(path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.parquet", "parquet"), ("a.json", "coco"), ("A.JSONL", "jsonl"), ("a.ndjson", "jsonl"), ("a.csv", "csv")],
)
def test_a_name_tells_the_format(name: str, expected: str) -> None:
    assert format_of(Path(name)) == expected


def test_another_name_tells_none() -> None:
    with pytest.raises(SettingsError, match=r"Expected a file that ends in \.parquet, \.json"):
        format_of(Path("a.txt"))


def test_jsonl_has_everything(tmp_path: Path) -> None:
    kept = [
        inference("x", metadata=[MetadataEntry("i", "int", 2**70), MetadataEntry("d", "dict", {"a": [1.5]})]),
        inference("y", records=None, error="model_failed", message='a "b"\n', parameters={"top_k": 3}),
    ]
    assert write(tmp_path / "a.jsonl", kept[:1], kept[1:]) == Exported(written=2)
    lines = (tmp_path / "a.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=RecordedInference) for line in lines] == kept


def test_csv_is_for_spreadsheets(tmp_path: Path) -> None:
    kept = inference(
        model='=HYPERLINK("http://x")',
        request_id="+1",
        message="@x, y\nz",
        records=[{"label": "a", "score": 0.2}, {"label": "-b", "score": 0.9}],
        metadata=[MetadataEntry("latitude", "float", -1.5), MetadataEntry("s", "str", "ü")],
        image=IMAGE,
    )
    write(tmp_path / "a.csv", [kept, inference("b", records=None)])
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert first["model"] == '\'=HYPERLINK("http://x")'
    assert (first["request_id"], first["message"]) == ("'+1", "'@x, y\nz")
    assert (first["started"], first["duration_ms"]) == ("1970-01-01T00:00:01.500000Z", "2.5")
    assert (first["found"], first["label"], first["score"]) == ("2", "'-b", "0.9")
    assert (first["latitude"], first["image_width"]) == ("-1.5", "200")
    assert json.loads(first["metadata"]) == {"latitude": -1.5, "s": "ü"}
    assert (second["found"], second["records"], second["label"]) == ("", "", "")


def test_parquet_has_types(tmp_path: Path) -> None:
    kept = inference(
        records=[{"label": "a", "score": 1}, {"prompt": "p"}],
        metadata=[
            MetadataEntry("i", "int", -3),
            MetadataEntry("big", "int", 2**70),
            MetadataEntry("f", "float", 3.0),
            MetadataEntry("s", "str", "3"),
            MetadataEntry("d", "dict", {"a": 1}),
        ],
        image=IMAGE,
    )
    refused = inference("b", records=None, error="internal")
    assert write(tmp_path / "a.parquet", [kept], [refused], []) == Exported(written=2)
    parquet: Any = import_module("pyarrow.parquet")
    first, second = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert first["started"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert (first["labels"], first["scores"]) == (["a", None], [1.0, None])
    assert [(each["int"], each["float"], each["text"]) for each in first["metadata"]] == [
        (-3, None, None),
        (None, None, str(2**70)),
        (None, 3.0, None),
        (None, None, "3"),
        (None, None, '{"a":1}'),
    ]
    assert (second["records"], second["labels"], second["error"]) == (None, None, "internal")


def test_coco_has_boxes(tmp_path: Path) -> None:
    box: dict[str, object] = {"label": "car", "score": 0.5, "xmin": 10.5, "ymin": 20.0, "xmax": 30.5, "ymax": 60.0}
    named = [MetadataEntry("file_name", "str", "street.jpg")]
    kept = [
        detected(TaskType.OBJECT_DETECTION, box, box | {"label": "dog"}, metadata=named),
        detected(TaskType.OBJECT_DETECTION),
        inference("classified", task_type=TaskType.IMAGE_CLASSIFICATION.value, image=IMAGE),
        inference("unsized", task_type=TaskType.OBJECT_DETECTION.value),
    ]
    assert write(tmp_path / "a.json", kept) == Exported(written=2, left_out=2)
    coco = COCO(str(tmp_path / "a.json"))
    assert [each["file_name"] for each in coco.loadImgs([1, 2])] == ["street.jpg", f"ab/{'ab' * 32}"]
    assert {each["name"] for each in coco.loadCats(coco.getCatIds())} == {"car", "dog"}
    first, second = coco.loadAnns([1, 2])
    assert first["bbox"] == [10.5, 20.0, 20.0, 40.0]
    assert (first["area"], first["score"], first["image_id"]) == (800.0, 0.5, 1)
    assert second["category_id"] != first["category_id"]
    assert coco.annToMask(first).sum() == 800
    results = coco.loadRes(list(coco.anns.values()))
    assert len(results.anns) == 2


def test_turned_boxes_are_turned_in_pixels(tmp_path: Path) -> None:
    quarter: dict[str, object] = {
        "label": "bar",
        "score": 1.0,
        "cx": 0.5,
        "cy": 0.5,
        "w": 0.2,
        "h": 0.1,
        "r": math.pi / 2,
    }
    write(tmp_path / "a.json", [detected(TaskType.ORIENTED_OBJECT_DETECTION, quarter)])
    (found,) = COCO(str(tmp_path / "a.json")).anns.values()
    # 40 by 10 pixels around (100, 50) in a picture of 200 by 100, stood upright.
    assert np.allclose(found["bbox"], [95, 30, 10, 40])
    assert math.isclose(found["area"], 400)
    eighth: dict[str, object] = quarter | {"r": math.pi / 4}
    write(tmp_path / "a.json", [detected(TaskType.ORIENTED_OBJECT_DETECTION, eighth)])
    (found,) = COCO(str(tmp_path / "a.json")).anns.values()
    corners = np.reshape(found["segmentation"][0], (4, 2))
    # Clockwise, with y down: the first half of the long side points to the right and down.
    assert np.allclose((corners[1] + corners[2]) / 2 - (100, 50), 20 * np.sqrt([0.5, 0.5]))


def masks() -> st.SearchStrategy[Any]:
    cells = st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=5, max_size=5)
    return cells.map(lambda rows: np.array(rows, np.uint8)).filter(np.any)


@given(masks(), st.integers(1, 4))
def test_masks_with_holes_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, mask: Any, scale: int) -> None:
    large = mask.repeat(scale, axis=0).repeat(scale, axis=1)
    contours = [[{"x": float(x), "y": float(y)} for x, y in each.tolist()] for each in contours_of_mask(large)]
    image = RecordedImage(digest="", width=large.shape[1], height=large.shape[0], size=1)
    record = {"label": "a", "score": 1.0, "contour": contours}
    kept = inference(task_type=TaskType.IMAGE_SEGMENTATION.value, records=[record], image=image)
    path = tmp_path_factory.mktemp("coco") / "a.json"
    write(path, [kept])
    coco = COCO(str(path))
    (found,) = coco.anns.values()
    rows, columns = np.nonzero(large)
    assert found["area"] == large.sum()
    assert found["bbox"] == [
        columns.min(), rows.min(), columns.max() - columns.min() + 1, rows.max() - rows.min() + 1
    ]  # fmt: skip
    if isinstance(found["segmentation"], dict):
        assert np.array_equal(coco.annToMask(found), large)
    else:
        assert all(len(each) >= 6 for each in found["segmentation"])


def test_a_polygon_covers_its_object(tmp_path: Path) -> None:
    mask = np.zeros((100, 200), np.uint8)
    mask[20:60, 50:120] = 1
    contours = [[{"x": float(x), "y": float(y)} for x, y in each.tolist()] for each in contours_of_mask(mask)]
    write(
        tmp_path / "a.json", [detected(TaskType.IMAGE_SEGMENTATION, {"label": "a", "score": 1.0, "contour": contours})]
    )
    coco = COCO(str(tmp_path / "a.json"))
    (found,) = coco.anns.values()
    drawn = coco.annToMask(found)
    assert isinstance(found["segmentation"], list)
    assert (drawn & mask).sum() / (drawn | mask).sum() > 0.95


@pytest.mark.parametrize("form", list(Format))
def test_nothing_is_a_file_too(tmp_path: Path, form: Format) -> None:
    assert write(tmp_path / "a", form=form) == Exported(written=0)
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize("form", list(Format))
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path, form: Format) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def broken() -> Iterator[Sequence[RecordedInference]]:
        yield [inference()]
        raise OSError("the store is gone")

    with pytest.raises(OSError, match="the store is gone"):
        export(broken(), path, form)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_usual_rights_and_progress_is_told(tmp_path: Path) -> None:
    told: list[int] = []
    export([[inference("a"), inference("b")], [inference("c")]], tmp_path / "a.csv", Format.CSV, told.append)
    (tmp_path / "b").touch()
    assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)
    assert told == [2, 3]


def test_a_place_that_is_no_file_is_told(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "no" / "a.csv", "There is no folder"),
        (tmp_path, "Expected a file, got the folder"),
    ):
        with pytest.raises(SettingsError, match=said):
            write(path, form=Format.CSV)
