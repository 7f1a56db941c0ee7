"""Datasets in YOLO's format, and image folders."""

import os
from pathlib import Path

import pytest
from PIL import Image

from app.plugins.evaluation.datasets.read import DatasetOptions, read_dataset
from tasks.task import TaskType
from tests.support.data.datasets import check_rejected, write_coco_dataset, write_image_folder, write_yolo_dataset
from tests.support.data.evaluation_samples import write_image

ORIENTED = "0 0.25 0.25 0.5 0.25 0.5 0.5 0.25 0.5"


def test_yolo_boxes_are_converted_to_pixels(tmp_path: Path) -> None:
    write_yolo_dataset(tmp_path, {"a": "0 0.5 0.5 0.25 0.5\n1 0.25 0.25 0.5 0.5\n", "b": ""})
    dataset = read_dataset(tmp_path)
    assert (dataset.tasks, dataset.labels) == ((TaskType.OBJECT_DETECTION,), ("cat", "dog"))
    first, second = dataset.items
    assert [(obj.label, obj.box) for obj in first.objects] == [("cat", (24, 12, 40, 36)), ("dog", (0, 0, 32, 24))]
    assert first.objects[1].location == f"{tmp_path / 'labels' / 'val' / 'a.txt'}:2"
    assert (first.id, second.objects) == ("images/val/a.jpg", ())


def test_four_corners_are_oriented_boxes_by_default(tmp_path: Path) -> None:
    write_yolo_dataset(tmp_path, {"a": ORIENTED})
    dataset = read_dataset(tmp_path)
    assert dataset.tasks == (TaskType.ORIENTED_OBJECT_DETECTION, TaskType.OBJECT_DETECTION)
    assert dataset.items[0].objects[0].rings == (((16, 12), (32, 12), (32, 24), (16, 24)),)
    segmentation = read_dataset(tmp_path, DatasetOptions(task=TaskType.IMAGE_SEGMENTATION))
    assert segmentation.items[0].objects[0].rings == (((16, 12), (32, 12), (32, 24), (16, 24)),)


def test_yolo_dataset_without_objects_fits_every_task(tmp_path: Path) -> None:
    write_yolo_dataset(tmp_path, {"a": ""}, "val: images/val\nnames: {}")
    dataset = read_dataset(tmp_path)
    assert (dataset.labels, len(dataset.items)) == ((), 1)
    assert dataset.tasks == tuple(task for task in TaskType if task.geometry)
    write_yolo_dataset(tmp_path, {"a": "0 0.5 0.5 0.2 0.2"}, "val: images/val\nnames: {}")
    check_rejected(tmp_path, r"a\.txt:1: Expected a class of data.yaml, whose names are empty, got '0'")


def test_yolo_images_without_label_file_are_noted(tmp_path: Path) -> None:
    write_yolo_dataset(tmp_path, {"a": "0 0.5 0.5 0.2 0.2"})
    write_image(tmp_path / "images" / "val" / "b.jpg")
    assert read_dataset(tmp_path).notes == ("1 of 2 images have no label file: they count as images without objects",)


def test_yolo_polygons_are_read_and_boxes_of_all_lines_are_taken_for_detection(tmp_path: Path) -> None:
    polygons = ORIENTED + "\n1 0 0 0.5 0 0.5 0.5"
    write_yolo_dataset(tmp_path, {"a": polygons})
    assert read_dataset(tmp_path).tasks == (TaskType.IMAGE_SEGMENTATION, TaskType.OBJECT_DETECTION)
    write_yolo_dataset(tmp_path, {"a": polygons + "\n0 0.5 0.5 0.25 0.5"})
    found = read_dataset(tmp_path, DatasetOptions(task=TaskType.OBJECT_DETECTION))
    boxes = [label.box for label in found.items[0].objects]
    assert boxes == [(16, 12, 32, 24), (0, 0, 32, 24), (24, 12, 40, 36)]
    assert found.tasks == (TaskType.OBJECT_DETECTION,)


def test_yolo_keypoints_follow_a_box(tmp_path: Path) -> None:
    description = "val: images/val\nnames: [cat]\nkpt_shape: [2, 3]"
    path = write_yolo_dataset(tmp_path, {"a": "0 0.5 0.5 0.25 0.5 0.1 0.1 2 0.2 0.2 0"}, description)
    dataset = read_dataset(path)
    assert (dataset.tasks, dataset.items[0].objects[0].box) == ((TaskType.OBJECT_DETECTION,), (24, 12, 40, 36))
    assert dataset.notes == ("The keypoints of the labels are not measured, only their boxes",)
    write_yolo_dataset(tmp_path, {"a": "0 0.5 0.5 0.25 0.5"}, description)
    check_rejected(path, "Expected a class, 4 numbers of a box and 6 of keypoints .kpt_shape., got 4 numbers")


def test_yolo_classes_and_paths_of_other_exporters_are_read(tmp_path: Path) -> None:
    path = write_yolo_dataset(tmp_path, {"a": "1.0 0.5 0.5 0.25 0.5"}, "val: list.txt\nnames: [cat, dog]")
    (tmp_path / "list.txt").write_text("images\\val\\a.jpg\n")
    assert read_dataset(path).items[0].objects[0].label == "dog"
    path.write_text("val: images\\val\nnames: [cat, dog]")
    assert [item.id for item in read_dataset(path).items] == ["images/val/a.jpg"]


@pytest.mark.parametrize("folders", [("images", "labels"), (".", ".")])
def test_yolo_folder_may_have_class_names_only(tmp_path: Path, folders: tuple[str, str]) -> None:
    images, labels = (tmp_path / folder for folder in folders)
    write_image(images / "a.jpg")
    labels.mkdir(exist_ok=True)
    (labels / "a.txt").write_text("1 0.5 0.5 0.25 0.5")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    # Label Studio writes it beside.
    (tmp_path / "notes.json").write_text('{"categories": [], "info": {}}')
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.labels, dataset.items[0].objects[0].label) == ("yolo", ("cat", "dog"), "dog")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0 0.5 0.5 0.25", r"a\.txt:1: Expected a class and 4 numbers of a box.*got 3 numbers"),
        ("0 0.5 0.5 0.2 0.2\n\n7 0.5 0.5 0.2 0.2", r"a\.txt:3: Expected a class from 0 to 1, got '7'"),
        (f"{'9' * 5000} 0.5 0.5 0.2 0.2", "Expected a class from 0 to 1, got '999"),
        ("0 0.5 nan 0.2 0.2", r"a\.txt:1: Expected a finite number, got 'nan'"),
        ("0 0.5 0.5 200 200", "Expected fractions of the image"),
        (
            "0 0.5 0.5 0.2 0.2\n" + ORIENTED,
            "Expected every line to be of IMAGE_SEGMENTATION, got a box; --task OBJECT_",
        ),
    ],
)
def test_invalid_line_is_rejected(tmp_path: Path, lines: str, message: str) -> None:
    write_yolo_dataset(tmp_path, {"a": lines})
    check_rejected(tmp_path, message)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("val: images/val\nnames: {0: cat, 2: dog}", "names: Expected a list"),
        ("val: images/val\nnames: [cat, cat]", "Expected each name once"),
        ("val: images/val", "names: Expected a list"),
        ("names: [cat]", "Expected a split"),
        ("val: nowhere\nnames: [cat]", "Expected a folder of images"),
        ("7", "Expected names and splits"),
        ("val: images/val\nnames: [cat]\nkpt_shape: 17", r"kpt_shape: Expected \[points, 2 or 3\], got 17"),
        # PyYAML raises other errors than its own for these.
        *((text, "Expected YAML") for text in ("[1", "date: 2026-99-99", "names: !!bool x", "names: !!timestamp x")),
    ],
)
def test_invalid_yolo_description_is_rejected(tmp_path: Path, description: str, message: str) -> None:
    write_yolo_dataset(tmp_path, {"a": ""}, description)
    check_rejected(tmp_path, message)


def test_yolo_split_is_selected(tmp_path: Path) -> None:
    write_yolo_dataset(tmp_path, {"a": ""}, "train: images/train\nval: list.txt\nnames: [cat]")
    write_image(tmp_path / "images" / "train" / "t.jpg")
    (tmp_path / "list.txt").write_text("images/val/a.jpg\n")
    assert [item.id for item in read_dataset(tmp_path).items] == ["images/val/a.jpg"]
    assert [item.id for item in read_dataset(tmp_path, DatasetOptions(split="train")).items] == ["images/train/t.jpg"]


def test_yolo_path_relative_to_parent_folder_is_resolved(tmp_path: Path) -> None:
    write_yolo_dataset(tmp_path / "data", {"a": ""}, "val: ../images/val\nnames: [cat]")
    assert [item.id for item in read_dataset(tmp_path / "data").items] == ["images/val/a.jpg"]


def test_labels_without_image_are_rejected(tmp_path: Path) -> None:
    path = write_yolo_dataset(tmp_path, {"a": "", "b": ""})
    (tmp_path / "labels" / "val" / "classes.txt").write_text("cat\ndog\n")
    assert len(read_dataset(path).items) == 2
    (tmp_path / "images" / "val" / "b.jpg").unlink()
    check_rejected(path, r"labels/val/b\.txt: there is no image of that name")


@pytest.mark.parametrize("lines", ["0 0.5 0.5 0 0.2\n0 0.5 0.5 0.2 0.2", f"0{' 0.5' * 8}\n{ORIENTED}"])
def test_objects_without_area_are_left_out(tmp_path: Path, lines: str) -> None:
    write_yolo_dataset(tmp_path, {"a": lines})
    dataset = read_dataset(tmp_path)
    assert len(dataset.items[0].objects) == 1
    assert "a.txt:1" in dataset.notes[0]


def test_folder_names_are_class_labels(tmp_path: Path) -> None:
    write_image_folder(tmp_path, {"cat": 2, "dog": 1, "none": 0})
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "metadata.csv").write_text("file_name,camera,hour\ncat/0.jpg,north,7\n1.jpg,south,\n")
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.labels) == ("image-folder", ("cat", "dog"))
    assert [(item.id, item.label, dict(item.metadata)) for item in dataset.items] == [
        ("cat/0.jpg", "cat", {"camera": "north", "hour": "7"}),
        ("cat/1.jpg", "cat", {"camera": "south"}),
        ("dog/0.jpg", "dog", {}),
    ]


def test_images_with_less_common_endings_are_read(tmp_path: Path) -> None:
    write_image_folder(tmp_path, {"cat": 4})
    for index, ending in enumerate(("JPG", "jfif", "jpe", "mpo")):
        (tmp_path / "cat" / f"{index}.jpg").rename(tmp_path / "cat" / f"{index}.{ending}")
    assert [item.id for item in read_dataset(tmp_path).items] == ["cat/0.JPG", "cat/1.jfif", "cat/2.jpe", "cat/3.mpo"]


def test_metadata_for_ambiguous_file_name_and_row_numbers_of_pandas_are_ignored(tmp_path: Path) -> None:
    write_image_folder(tmp_path, {"cat": 1, "dog": 1})
    (tmp_path / "metadata.csv").write_text(",file_name,camera\n0,0.jpg,south\n1,dog/0.jpg,north\n")
    assert [dict(item.metadata) for item in read_dataset(tmp_path).items] == [{}, {"camera": "north"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metadata.csv", "file_name,a\n0.jpg,1,2\n", r"metadata\.csv:2: Expected as many values"),
        ("metadata.csv", "a,b\n1,2\n", r"metadata\.csv:2: Expected the image's name"),
        ("metadata.jsonl", '{"file_name": "0.jpg"}\n' * 2, r"metadata\.jsonl:2: Expected each image once"),
        ("metadata.jsonl", "[]", r"metadata\.jsonl:1: Expected a JSON object"),
        ("metadata.csv", b"\xff\xfe", "Expected text in UTF-8"),
        ("metadata.csv", 'file_name,a\n0.jpg,"1\n', r"metadata\.csv:2: Expected CSV: unexpected end of data"),
        ("metadata.csv", f"file_name,a\n0.jpg,{'1' * 200_000}\n", "Expected CSV: field larger than field limit"),
    ],
)
def test_invalid_metadata_is_rejected(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    write_image_folder(tmp_path, {"cat": 1})
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    check_rejected(tmp_path, message)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.jpg", b"no picture", r"broken\.jpg: Expected an encoded image"),
        ("empty.png", b"", r"empty\.png"),
        ("phone.HEIC", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", r"phone\.HEIC: HEIC and HEIF images are not decoded"),
        (os.fsdecode(b"cat\xe9.jpg"), b"", r"cat.udce9\.jpg: Expected a name in UTF-8"),
    ],
    ids=["broken", "empty", "heic", "name"],
)
def test_unreadable_images_are_rejected_or_skipped(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (write_image_folder(tmp_path, {"cat": 1}) / "cat" / name).write_bytes(content)
    check_rejected(tmp_path, message)
    assert len(read_dataset(tmp_path, DatasetOptions(skip_bad=True)).items) == 1


@pytest.mark.parametrize("ending", ["jpg", "png", "tiff", "webp", "avif"])
def test_image_size_follows_exif_orientation(tmp_path: Path, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (60, 40)).save(tmp_path / "cat" / f"0.{ending}", exif=exif)
    (item,) = read_dataset(tmp_path).items
    assert (item.width, item.height) == (40, 60)


def test_path_that_is_not_a_dataset_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("hello")
    for path in (tmp_path, file):
        check_rejected(path, "got none of them")
    check_rejected(tmp_path / "nowhere", "there is no such file or folder")
    check_rejected(tmp_path, "as coco it cannot be read", format="coco")
    check_rejected(file, "as image-folder it cannot be read", format="image-folder")
    write_image_folder(tmp_path, {"cat": 1})
    check_rejected(tmp_path, "labels of OBJECT_DETECTION, got image-folder labels", task=TaskType.OBJECT_DETECTION)


def test_several_label_files_are_rejected(tmp_path: Path) -> None:
    path = write_coco_dataset(tmp_path, [])
    path.with_name("other.json").write_bytes(path.read_bytes())
    check_rejected(tmp_path, r"got annotations/instances\.json, annotations/other\.json; name the one")
