"""Exports, read back with the tools that use them."""

import math
import stat
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.settings.server import SettingsError
from app.plugins.recording.export.writing import Format, export_inferences, format_of
from app.plugins.recording.inference import Exported, RecordedImage, RecordedInference
from metadata.request import MetadataEntry
from tasks.task import TaskType
from tasks.vision.contours import contours_of_mask
from tests.support.data.recorded_rows import Value, metadata_entry, recorded_inference

# Its type stubs omit fields that it reads, such as scores.
COCO: Any = import_module("pycocotools.coco").COCO

# pycocotools warns when it decodes masks under numpy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

IMAGE = RecordedImage(digest="ab" * 32, width=200, height=100, size=1000)


def inference(name: str = "a-0-0", **fields: Any) -> RecordedInference:
    return recorded_inference(name, **{"started": 1_500_000, "task_type": "", **fields})


def detected(task_type: TaskType, *records: dict[str, object], **fields: Any) -> RecordedInference:
    values: dict[str, Any] = {"task_type": str(task_type), "records": list(records), "image": IMAGE}
    return inference(**values | fields)


def write(path: Path, *batches: Sequence[RecordedInference], file_format: Format | None = None) -> Exported:
    return export_inferences(batches, path, file_format or format_of(path))


def coco_of(folder: Path, *inferences: RecordedInference) -> tuple[Any, list[dict[str, Any]]]:
    """Return inferences as pycocotools reads their export_inferences, and its annotations."""
    write(folder / "a.json", inferences)
    coco = COCO(str(folder / "a.json"))
    return coco, list(coco.anns.values())


def segment(*outlines: Sequence[tuple[float, float]]) -> dict[str, object]:
    contours = [[{"x": float(x), "y": float(y)} for x, y in outline] for outline in outlines]
    return {"label": "a", "score": 1.0, "contour": contours}


def test_format_follows_file_extension() -> None:
    names = ("a.parquet", "a.json", "A.JSONL", "a.ndjson")
    assert [format_of(Path(name)) for name in names] == ["parquet", "coco", "jsonl", "jsonl"]
    with pytest.raises(SettingsError, match=r"Expected a file that ends in \.parquet, \.json"):
        format_of(Path("a.txt"))


def test_parquet_has_typed_columns(tmp_path: Path) -> None:
    values: dict[str, Value] = {"i": -3, "big": 2**70, "f": 3.0, "s": "3", "d": {"a": 1}}
    metadata = [metadata_entry(*pair) for pair in values.items()]
    records = [{"label": "a", "score": 1}, {"prompt": "p"}]
    exported = inference(records=records, metadata=metadata, image=IMAGE)
    failed = inference("b", records=None, error="internal")
    assert write(tmp_path / "a.parquet", [exported], [failed], []) == Exported(written=2)
    parquet: Any = import_module("pyarrow.parquet")
    first, second = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert first["started"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert (first["labels"], first["scores"]) == (["a", None], [1.0, None])
    assert [(entry["int"], entry["float"], entry["text"]) for entry in first["metadata"]] == [
        (-3, None, None),
        (None, None, str(2**70)),
        (None, 3.0, None),
        (None, None, "3"),
        (None, None, '{"a":1}'),
    ]
    assert (second["records"], second["labels"], second["error"]) == (None, None, "internal")


def test_coco_export_has_boxes(tmp_path: Path) -> None:
    box: dict[str, object] = {"label": "car", "score": 0.5, "xmin": 10.5, "ymin": 20.0, "xmax": 30.5, "ymax": 60.0}
    named = [MetadataEntry("file_name", "str", "street.jpg")]
    inferences = [
        detected(TaskType.OBJECT_DETECTION, box, box | {"label": "dog"}, metadata=named),
        detected(TaskType.OBJECT_DETECTION),
        inference("classified", task_type=TaskType.IMAGE_CLASSIFICATION, image=IMAGE),
        inference("unsized", task_type=TaskType.OBJECT_DETECTION),
    ]
    assert write(tmp_path / "a.json", inferences) == Exported(written=2, left_out=2)
    coco = COCO(str(tmp_path / "a.json"))
    assert [image["file_name"] for image in coco.loadImgs([1, 2])] == ["street.jpg", f"ab/{'ab' * 32}"]
    first, second = coco.loadAnns([1, 2])
    categories = coco.loadCats([first["category_id"], second["category_id"]])
    assert [category["name"] for category in categories] == ["car", "dog"]
    assert first["bbox"] == [10.5, 20.0, 20.0, 40.0]
    assert (first["area"], first["score"], first["image_id"]) == (800.0, 0.5, 1)
    assert len(coco.loadRes(list(coco.anns.values())).anns) == 2


@pytest.mark.parametrize("angle", [math.pi / 2, math.pi / 4])
def test_oriented_boxes_are_rotated_in_pixels(tmp_path: Path, angle: float) -> None:
    box: dict[str, object] = {"label": "bar", "score": 1.0, "cx": 0.5, "cy": 0.5, "w": 0.2, "h": 0.1, "r": angle}
    _, (annotation,) = coco_of(tmp_path, detected(TaskType.ORIENTED_OBJECT_DETECTION, box))
    # 40 by 10 pixels around (100, 50) in an image of 200 by 100.
    assert math.isclose(annotation["area"], 400)
    corners = np.reshape(annotation["segmentation"][0], (4, 2))
    assert np.allclose(annotation["bbox"], [*corners.min(axis=0), *np.ptp(corners, axis=0)])
    # Clockwise, with y down: the first half of the long side points to the right and down.
    half = 20 * np.array([math.cos(angle), math.sin(angle)])
    assert np.allclose((corners[1] + corners[2]) / 2 - (100, 50), half)


def masks() -> st.SearchStrategy[Any]:
    cells = st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=5, max_size=5)
    return cells.map(lambda rows: np.array(rows, np.uint8)).filter(np.any)


@pytest.mark.slow
@settings(max_examples=25)
@given(masks(), st.integers(1, 4))
def test_masks_with_holes_round_trip_exactly(tmp_path_factory: pytest.TempPathFactory, mask: Any, scale: int) -> None:
    large = mask.repeat(scale, axis=0).repeat(scale, axis=1)
    image = RecordedImage(digest="", width=large.shape[1], height=large.shape[0], size=1)
    record = segment(*(contour.tolist() for contour in contours_of_mask(large)))
    exported = detected(TaskType.IMAGE_SEGMENTATION, record, image=image)
    coco, (annotation,) = coco_of(tmp_path_factory.mktemp("coco"), exported)
    rows, columns = np.nonzero(large)
    assert annotation["area"] == large.sum()
    assert annotation["bbox"] == [columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]
    if isinstance(annotation["segmentation"], dict):
        assert np.array_equal(coco.annToMask(annotation), large)
    else:
        assert all(len(polygon) >= 6 for polygon in annotation["segmentation"])


def test_run_lengths_end_at_the_border_of_the_image(tmp_path: Path) -> None:
    record = segment([(-5, -5), (5, -5), (5, 5), (-5, 5)], [(1, 1), (4, 1), (4, 4), (1, 4)])
    image = RecordedImage(digest="", width=8, height=8, size=1)
    coco, (annotation,) = coco_of(tmp_path, detected(TaskType.IMAGE_SEGMENTATION, record, image=image))
    expected = np.zeros((8, 8), np.uint8)
    expected[:6, :6] = 1
    expected[2:4, 2:4] = 0
    assert np.array_equal(coco.annToMask(annotation), expected)


@pytest.mark.parametrize("far", [1e6, 1e300])
def test_outlines_far_outside_the_image_are_cut_at_its_border(tmp_path: Path, far: float) -> None:
    record = segment([(50, 20), (far, 20), (far, far), (50, far)])
    _, (annotation,) = coco_of(tmp_path, detected(TaskType.IMAGE_SEGMENTATION, record))
    assert (annotation["bbox"], annotation["area"]) == ([50, 20, 150, 80], 150 * 80)
    assert annotation["segmentation"] == [[50.5, 20.5, 50.5, 99.5, 199.5, 99.5, 199.5, 20.5]]


@pytest.mark.parametrize("far", [300, 300_000])
def test_outline_that_leaves_the_image_keeps_its_edges(tmp_path: Path, far: int) -> None:
    records = segment([(50, 50), (50 - 2 * far, 50 - far), (-far, 50)]), segment([(-9, 5), (-5, far)])
    _, (annotation,) = coco_of(tmp_path, detected(TaskType.IMAGE_SEGMENTATION, *records))
    assert annotation["bbox"] == [0, 25, 51, 26]
    assert math.isclose(annotation["area"], 26 * 26, rel_tol=0.05)


@pytest.mark.parametrize("file_format", ["parquet", "coco", "jsonl"])
def test_empty_export_writes_a_file_and_failed_export_keeps_the_old_one(tmp_path: Path, file_format: Format) -> None:
    path = tmp_path / "a"
    assert write(path, file_format=file_format) == Exported(written=0)
    old = path.read_bytes()

    def broken() -> Iterator[Sequence[RecordedInference]]:
        yield [inference()]
        raise OSError("the store is gone")

    with pytest.raises(OSError, match="the store is gone"):
        export_inferences(broken(), path, file_format)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_export_has_default_permissions(tmp_path: Path) -> None:
    export_inferences([[inference("a")]], tmp_path / "a.jsonl", "jsonl")
    (tmp_path / "b").touch()
    assert stat.S_IMODE((tmp_path / "a.jsonl").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


def test_path_that_is_not_a_file_is_rejected(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "no" / "a.jsonl", "There is no folder"), (tmp_path, "Expected a file, got")):
        with pytest.raises(SettingsError, match=message):
            write(path, file_format="jsonl")
