"""Datasets in COCO's JSON, and the errors of invalid files."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pycocotools import mask as oracle

from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.datasets.files import DatasetOptions
from app.plugins.evaluation.datasets.read import read_dataset
from app.plugins.evaluation.masks import decode_mask, read_run_lengths, truth_mask
from tasks.task import TaskType
from tests.support.data.datasets import check_rejected, coco_annotation, write_coco_dataset, write_image_folder


def test_boxes_and_metadata_are_read(tmp_path: Path) -> None:
    write_coco_dataset(tmp_path, [coco_annotation(), coco_annotation(2, category_id=2, image_id=2)])
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.labels) == ("coco", ("cat", "dog"))
    assert dataset.tasks == (TaskType.OBJECT_DETECTION,)
    first, second = dataset.items
    assert first.objects[0].box == (10, 8, 30, 24)
    assert (first.width, first.height) == (64, 48)
    assert first.metadata == {"camera": "north"}
    assert second.metadata == {"camera": "south", "frame": "7"}
    assert first.objects[0].location.endswith("instances.json: annotations[0]")


def test_polygons_are_joined_and_crowds_are_ignored(tmp_path: Path) -> None:
    polygons = [[0, 0, 10, 0, 10, 10, 0, 10], [5, 5, 15, 5, 15, 15, 5, 15]]
    crowd = coco_annotation(2, iscrowd=1, **runs([48 * 10, 48 * 4, 48 * 50]))
    write_coco_dataset(tmp_path, [coco_annotation(segmentation=polygons), crowd])
    dataset = read_dataset(tmp_path)
    assert dataset.tasks == (TaskType.IMAGE_SEGMENTATION, TaskType.OBJECT_DETECTION)
    outlined, crowd = dataset.items[0].objects
    assert decode_mask(truth_mask(outlined, 64, 48)).sum() == 175
    assert outlined.box == (10, 8, 30, 24)
    assert (outlined.ignored, crowd.ignored) == (False, True)
    assert decode_mask(truth_mask(crowd, 64, 48)).sum() == 4 * 48
    assert any("1 crowds" in note for note in dataset.notes)


def test_images_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    images = [{"id": 7, "file_name": "a.jpg"}, {"id": 3, "file_name": "b.jpg"}]
    path = write_coco_dataset(tmp_path, [], images=images)
    assert [item.id for item in read_dataset(path).items] == ["b.jpg", "a.jpg"]


def test_missing_box_is_computed_from_mask_or_outline(tmp_path: Path) -> None:
    masked = coco_annotation(bbox=None, **runs([48 * 10 + 5, 6, 48 * 54 - 11]))
    outlined = coco_annotation(2, bbox=[], segmentation=[[2, 3, 10, 3, 10, 9]])
    objects = read_dataset(write_coco_dataset(tmp_path, [masked, outlined])).items[0].objects
    assert [found.box for found in objects] == [(10, 5, 11, 11), (2, 3, 10, 9)]


def test_rotation_of_cvat_makes_an_oriented_box(tmp_path: Path) -> None:
    turned = coco_annotation(attributes={"rotation": 90.0, "occluded": False}, segmentation=[])
    path = write_coco_dataset(tmp_path, [turned, coco_annotation(2, attributes={"rotation": 0.0})])
    dataset = read_dataset(path)
    assert dataset.tasks == (TaskType.ORIENTED_OBJECT_DETECTION, TaskType.OBJECT_DETECTION)
    turned, upright = dataset.items[0].objects
    # Clockwise about the centre: the left top corner becomes the right top one.
    np.testing.assert_allclose(turned.outlines[0], [(28, 6), (28, 26), (12, 26), (12, 6)])
    assert turned.box == pytest.approx((12, 6, 28, 26))
    assert (upright.box, upright.rings) == ((10, 8, 30, 24), None)


def test_outline_of_cvat_is_rotated_already(tmp_path: Path) -> None:
    outlined = coco_annotation(attributes={"rotation": 90.0}, segmentation=[[2, 3, 10, 3, 10, 9]])
    dataset = read_dataset(write_coco_dataset(tmp_path, [outlined]))
    assert dataset.tasks == (TaskType.IMAGE_SEGMENTATION, TaskType.OBJECT_DETECTION)
    assert dataset.items[0].objects[0].rings == (((2, 3), (10, 3), (10, 9)),)


def test_parts_of_an_outline_without_area_leave_the_box_and_the_other_parts(tmp_path: Path) -> None:
    parts = [[1, 2], [1, 1, 2, 2, 3, 3], [2, 3, 10, 3, 10, 9]]
    annotations = [coco_annotation(segmentation=parts), coco_annotation(2, segmentation=[[1, 2, 3, 4]])]
    first, second = read_dataset(write_coco_dataset(tmp_path, annotations)).items[0].objects
    assert (first.box, first.rings) == ((10, 8, 30, 24), (((2, 3), (10, 3), (10, 9)),))
    assert (second.box, second.rings) == ((10, 8, 30, 24), None)


def test_whole_numbers_may_be_floats(tmp_path: Path) -> None:
    images = [{"id": 1.0, "file_name": "a.jpg", "width": 64.0, "height": 48.0}]
    masked = runs([48 * 10, 5, 48 * 54 - 5], 48.0, 64.0)
    annotation = coco_annotation(image_id=1, category_id=1.0, iscrowd=0.0, **masked)
    path = write_coco_dataset(tmp_path, [annotation], images=images, categories=[{"id": 1.0, "name": "cat"}])
    (item,) = read_dataset(path, DatasetOptions(needs_images=False, images=tmp_path)).items
    assert (item.width, item.objects[0].label, item.objects[0].ignored) == (64, "cat", False)


def test_names_of_windows_are_found(tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "images\\a.jpg"}]
    path = write_coco_dataset(tmp_path, [coco_annotation()], images=images)
    (tmp_path / "annotations" / "metadata.csv").write_text("file_name,camera\nimages\\a.jpg,north\n")
    (item,) = read_dataset(path).items
    assert (item.id, item.image, item.metadata) == ("images/a.jpg", tmp_path / "images" / "a.jpg", {"camera": "north"})


@given(data=st.data())
def test_run_lengths_decode_as_in_pycocotools(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    bits = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    mask = np.asfortranarray(np.array(bits, np.uint8).reshape(height, width))
    encoded: Any = oracle.encode(mask)
    decoded = decode_mask(read_run_lengths(encoded["counts"].decode(), height, width))
    np.testing.assert_array_equal(decoded, mask)


def runs(counts: object, *size: float) -> dict[str, Any]:
    return {"segmentation": {"size": size or (48, 64), "counts": counts}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bbox": [1, 2, 3]}, r"annotations\[0\]: Expected `array` of length 4, got 3 - at `\$.bbox`"),
        ({"bbox": [1, 2, float("nan"), 4]}, "Expected JSON"),
        ({"bbox": [1e308, 0, 1e308, 1]}, r"Expected `float` <= 1000000.0 - at `\$.bbox\[0\]`"),
        ({"bbox": [1, 2, -3, 4]}, "Expected `float` >= 0.0"),
        ({"bbox": None}, "Expected a bbox or a segmentation, got neither"),
        ({"iscrowd": "0"}, r"at `\$.iscrowd`"),
        ({"image_id": 9}, "image_id: Expected the id of an image, got 9"),
        ({"category_id": 9}, "category_id: Expected the id of a category, got 9"),
        ({"category_id": {}}, "Expected `int`, got `object`"),
        ({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, r"segmentation\[0\]: Expected x and y of each point"),
        ({"bbox_mode": 0}, "bbox_mode: Expected 1, for left, top, width and height in pixels, got 0"),
        ({"angle": 30}, "angle: Expected 0, or degrees in attributes.rotation, as CVAT writes them, got 30"),
        ({"attributes": {"rotation": "left"}}, "attributes.rotation: Expected a finite number, got 'left'"),
        (runs([], 9, 9), "size: Expected the size of the image, 48 and 64, got 9 and 9"),
        (runs([], 0, 9), "Expected `float` > 0.0"),
        (runs([1, 2]), "lengths of 48 x 64 pixels: .* decoded 3 pixels"),
        *((runs(counts), "Expected run lengths") for counts in ([-1, 3073], "~~", [2**63] * 2, "é", [1.5, 3070.5], 7)),
        (runs("o" * 99), "RLE string is malformed"),
        ({"id": 2}, r"annotations\[1\]: id: Expected each id once, got 2 again"),
    ],
)
def test_invalid_annotation_is_rejected(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_coco_dataset(tmp_path, [coco_annotation(**changes), coco_annotation(2)])
    check_rejected(tmp_path, message)


def image(**fields: object) -> dict[str, Any]:
    return {"images": [{"id": 1, **fields}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (image(file_name="c.jpg"), "c.jpg: there is no such file"),
        (image(), r"images\[0\]: Object missing required field `file_name`"),
        (image(file_name="a\0.jpg"), r"a\\0\.jpg: Expected a name in UTF-8, without NUL"),
        (image(file_name="a" * 300), "cannot be read: File name too long"),
        (image(file_name="/dev/zero"), "/dev/zero: is no file"),
        (image(file_name="a.jpg", width=48, height=64), r"images\[0\]: Expected .* upright, 64 and 48, got 48 and 64"),
        ({"images": [{"id": 1, "file_name": "a.jpg"}] * 2}, r"images\[1\]: Expected each id and name once"),
        ({"categories": [{"id": 1, "name": ""}]}, r"categories\[0\]: Expected `str` of length >= 1"),
        ({"categories": [{"id": 1, "name": name} for name in "ab"]}, r"categories\[1\]: Expected each id and name"),
        ({"images": []}, "Expected labelled images as coco, got none"),
        ({"images": 7}, "Expected images, annotations and categories"),
    ],
)
def test_invalid_image_or_category_is_rejected(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    check_rejected(write_coco_dataset(tmp_path, [], **changes), message)


@pytest.mark.parametrize(
    ("replaced", "line"), [('"a.jpg"', 3), ('"b.jpg"', 7), ("]", 8)], ids=["in an element", "in another", "cut off"]
)
def test_malformed_json_error_names_the_line(tmp_path: Path, replaced: str, line: int) -> None:
    path = write_coco_dataset(tmp_path, [])
    lines = ['{"images": [', "{", '"file_name": "a.jpg",', '"id": 1', "}, {", "", '"file_name": "b.jpg"', "}]"]
    text = "\n".join(lines)
    path.write_text(text[: text.rindex(replaced)] if replaced == "]" else text.replace(replaced, "NaN"))
    check_rejected(path, rf"instances\.json:{line}: Expected JSON")


def test_all_errors_are_reported_together_or_skipped(tmp_path: Path) -> None:
    invalid = (coco_annotation(number, bbox=[1]) for number in range(2, 20))
    path = write_coco_dataset(tmp_path, [coco_annotation(), *invalid])
    with pytest.raises(EvaluationError) as raised:
        read_dataset(path)
    lines = str(raised.value).splitlines()
    assert lines[0] == "18 labels or images cannot be used:"
    assert lines[-2:] == ["  and 8 more", "--skip-bad leaves them out"]
    dataset = read_dataset(path, DatasetOptions(skip_bad=True))
    assert len(dataset.items[0].objects) == 1
    assert len(dataset.notes) == 11


def test_file_with_an_ending_in_capitals_is_read(tmp_path: Path) -> None:
    path = write_coco_dataset(tmp_path, [coco_annotation()])
    assert len(read_dataset(path.rename(path.with_suffix(".JSON"))).items) == 2


def test_objects_without_area_are_skipped_with_a_note(tmp_path: Path) -> None:
    flat = [coco_annotation(bbox=[1, 2, 0, 4]), coco_annotation(2, bbox=[], segmentation=[[1, 1, 2, 2, 3, 3]])]
    dataset = read_dataset(write_coco_dataset(tmp_path, flat))
    assert dataset.items[0].objects == ()
    assert "2 objects without area were left out" in dataset.notes[0]


def test_images_are_found_in_the_coco_folder_layout(tmp_path: Path) -> None:
    path = write_coco_dataset(tmp_path, [coco_annotation()])
    (tmp_path / "images").rename(tmp_path / "val2017")
    moved = path.rename(path.with_name("instances_val2017.json"))
    assert read_dataset(moved).items[0].image == tmp_path / "val2017" / "a.jpg"
    (tmp_path / "val2017").rename(tmp_path / "elsewhere")
    assert len(read_dataset(moved, DatasetOptions(images=tmp_path / "elsewhere")).items) == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("id", "image_id", "category_id", "bbox", "segmentation", "iscrowd", "size", "counts", "file_name", "name")
RECORD = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=20)
@given(
    annotations=st.lists(RECORD, max_size=3),
    images=st.lists(RECORD, max_size=2),
    categories=st.lists(RECORD, max_size=2),
    record=RECORD,
)
def test_arbitrary_json_is_read_or_rejected(
    tmp_path: Path, annotations: Any, images: Any, categories: Any, record: Any
) -> None:
    valid_images = [{"id": 1, "file_name": "a.jpg"}]
    path = write_coco_dataset(
        tmp_path,
        [*annotations, coco_annotation(99, **{key: value for key, value in record.items() if key != "name"})],
        images=[*valid_images, *images],
        categories=[{"id": 1, "name": "cat"}, *categories],
    )
    with contextlib.suppress(EvaluationError):
        read_dataset(path)
    assert read_dataset(path, DatasetOptions(skip_bad=True)).items[0].id == "a.jpg"


@pytest.mark.parametrize("option", ["split", "images"])
def test_option_that_the_format_does_not_use_is_rejected(tmp_path: Path, option: str) -> None:
    write_image_folder(tmp_path, {"cat": 1})
    options: Mapping[str, Any] = {option: tmp_path}
    with pytest.raises(EvaluationError, match=f"--{option}: no effect on image-folder; it is for "):
        read_dataset(tmp_path, DatasetOptions(**options))
