"""Labels of data sets and tools become truths of the inferences of their images."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.datasets.files import DatasetOptions
from app.plugins.evaluation.truths.command import import_truth
from app.plugins.evaluation.truths.importing import read_labels
from app.plugins.recording.command import inferences
from app.plugins.recording.export.writing import Format, export_inferences
from app.plugins.recording.images import ImageFile, ImageFolder
from app.plugins.recording.inference import RecordedImage
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import open_recordings
from tests.plugins.evaluation.truths.recorded import CAR, DOG, PART, SHIP, detection, found
from tests.support.data.recorded_rows import write_store

DIGEST = "4f" * 32


def truths_in(store: str) -> Mapping[str, Sequence[Mapping[str, Any]] | None]:
    page = open_recordings(store).page(InferenceQuery(truth="yes"), 100)
    return {inference.id: inference.truth and inference.truth.records for inference in page.inferences}


def rounded(records: object) -> object:
    """Return records with few digits, because files have few."""
    return json.loads(json.dumps(records), parse_float=lambda text: round(float(text), 3))


@pytest.mark.parametrize(
    ("task", "records"),
    [("OBJECT_DETECTION", [CAR, DOG]), ("ORIENTED_OBJECT_DETECTION", [SHIP]), ("IMAGE_SEGMENTATION", [PART])],
)
@pytest.mark.parametrize("file_format", ["coco", "yolo"])
def test_exported_answers_return_as_truths(
    tmp_path: Path, task: str, records: list[dict[str, object]], file_format: Format
) -> None:
    png, digest = cv2.imencode(".png", np.zeros((48, 64, 3), np.uint8))[1].tobytes(), "ab" * 32
    ImageFolder(tmp_path / "images", durable=False).write([ImageFile(digest, png)])
    image = RecordedImage(digest=digest, width=64, height=48, size=len(png), kept=True)
    inference = detection("a", records=found(*records), task_type=task, metadata=[], image=image)
    store = write_store(tmp_path / "store.db", inference)
    labels = tmp_path / ("labels.json" if file_format == "coco" else "labels")
    export_inferences([[inference]], labels, file_format, images=tmp_path / "images")
    import_truth(store, labels)
    assert rounded(truths_in(store)[inference.id]) == rounded(records)
    assert [item.id for item in open_recordings(store).page(InferenceQuery(truth="wrong"), 10).inferences] == []


def coco(*names: str, **annotation: Any) -> Mapping[str, Any]:
    """Return images with these names, the first with a car."""
    images = [{"id": number, "file_name": name, "width": 64, "height": 48} for number, name in enumerate(names, 1)]
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20], "iscrowd": 0}
    return {"images": images, "annotations": [box | annotation], "categories": [{"id": 1, "name": "car"}]}


def test_images_of_coco_are_found_by_name_or_digest_without_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_store(
        tmp_path / "store.db", detection("a", CAR), detection("b", CAR, metadata=[], digest=DIGEST), detection("c")
    )
    (tmp_path / "labels.json").write_text(json.dumps(coco("day/a.jpg", f"4f/{DIGEST}.jpg", "gone.jpg")))
    import_truth(store, tmp_path / "labels.json")
    assert truths_in(store) == {"a-0-0": [CAR], "b-0-0": []}
    error = capsys.readouterr().err
    assert "Stored the truth of 2 inferences, from 3 coco labels" in error
    assert "1 label left out, because no inference fits, by id, request id, SHA-256 or file name" in error
    assert "gone.jpg" in error


def test_crowds_make_a_truth_incomplete_and_all_inferences_of_an_image_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same: dict[str, Any] = {"digest": DIGEST, "metadata": []}
    store = write_store(tmp_path / "store.db", detection("a", CAR, **same), detection("b", CAR, **same))
    both = coco(f"{DIGEST}.jpg", iscrowd=1)
    both["annotations"].append({"id": 2, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20]})
    (tmp_path / "labels.json").write_text(json.dumps(both))
    import_truth(store, tmp_path / "labels.json")
    assert "Stored the truth of 2 inferences, from 1 coco label" in capsys.readouterr().err
    stored = [item.truth for item in open_recordings(store).page(InferenceQuery(truth="yes"), 9).inferences]
    assert [item and (item.records, item.complete, item.verdict) for item in stored] == [([CAR], False, "right")] * 2


def test_image_folder_is_matched_by_the_content_of_its_files(tmp_path: Path) -> None:
    image = tmp_path / "labels" / "cat" / "x.png"
    image.parent.mkdir(parents=True)
    cv2.imwrite(str(image), np.zeros((48, 64, 3), np.uint8))
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    fields: dict[str, Any] = {"records": [{"label": "dog", "score": 0.75}], "metadata": []}
    classified = detection("a", digest=digest, task_type="IMAGE_CLASSIFICATION", **fields)
    store = write_store(tmp_path / "store.db", classified, detection("b", CAR, digest=digest))
    import_truth(store, tmp_path / "labels")
    assert truths_in(store) == {"a-0-0": [{"label": "cat"}]}


def region(kind: str, **value: Any) -> Mapping[str, Any]:
    return {"type": kind, "value": value, "original_width": 64, "original_height": 48}


def rectangle(label: str, x: float, y: float, width: float, height: float, rotation: float = 0) -> Mapping[str, Any]:
    """Return a region in percent for pixels."""
    place = {"x": x / 0.64, "y": y / 0.48, "width": width / 0.64, "height": height / 0.48, "rotation": rotation}
    return region("rectanglelabels", rectanglelabels=[label], **place)


def test_newest_annotation_of_label_studio_counts(tmp_path: Path) -> None:
    # The corner (x, y) of a box of 32 x 12 pixels around the centre of 64 x 48, turned by 0.3 radians.
    x, y = 32 - 16 * np.cos(0.3) + 6 * np.sin(0.3), 24 - 16 * np.sin(0.3) - 6 * np.cos(0.3)
    ship = rectangle("ship", float(x), float(y), 32, 12, float(np.degrees(0.3)))
    triangle = region("polygonlabels", polygonlabels=["part"], points=[[0, 0], [50, 0], [50, 50]])
    open_line = region("polygonlabels", polygonlabels=["part"], points=[[0, 0], [50, 0]])
    car = rectangle("car", 10, 10, 20, 20)
    about: list[Any] = [
        {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right"},
        region("choices", choices=["day", "rain"]),
        {**car, "type": "choices", "value": {**car["value"], "choices": ["parked"]}},
        region("rating", rating=4),
    ]
    annotations = [
        {"result": [rectangle("cow", 0, 0, 9, 9)], "updated_at": "2026-01-03", "was_cancelled": True},
        {"result": [rectangle("car", 10, 10, 20, 20)], "updated_at": "2026-01-02"},
        {"result": [rectangle("dog", 0, 0, 9, 9)], "updated_at": "2026-01-01"},
    ]
    tasks: list[tuple[dict[str, str], list[Any]]] = [
        ({"image": "/data/upload/3/1a2b3c4d-a.jpg"}, annotations),
        ({"image": "http://host:8080/inferences/b-0-0/image"}, [{"result": [ship]}]),
        ({"image": "/data/local-files/?d=day%5Cc.jpg"}, [{"result": [triangle, open_line]}]),
        ({"image": "x", "inference": "d-0-0"}, [{"result": [region("choices", choices=["cat"])]}]),
        ({"image": "e.jpg"}, [{"result": []}]),
        ({"image": "f.jpg"}, [{"result": [region("choices", choices=["day"]), car]}]),
        ({"image": "g.jpg"}, [{"result": [*about, car]}]),
        ({"image": "none.jpg"}, []),
    ]
    (tmp_path / "labels.json").write_text(json.dumps([{"data": data, "annotations": made} for data, made in tasks]))
    store = write_store(
        tmp_path / "store.db",
        detection("a", CAR),
        detection("b", task_type="ORIENTED_OBJECT_DETECTION"),
        detection("c", task_type="IMAGE_SEGMENTATION"),
        detection("d", records=[{"label": "dog", "score": 0.5}], task_type="IMAGE_CLASSIFICATION"),
        detection("e", SHIP, task_type="ORIENTED_OBJECT_DETECTION"),
        detection("f", CAR),
        detection("g", CAR),
    )
    import_truth(store, tmp_path / "labels.json")
    points = [{"x": -0.5, "y": -0.5}, {"x": 31.5, "y": -0.5}, {"x": 31.5, "y": 23.5}]
    expected = [[CAR], [CAR], [], [{"label": "cat"}], [{"label": "part", "contour": [points]}], [SHIP], [CAR]]
    assert rounded(list(truths_in(store).values())) == rounded(expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"records": []}', "labels.jsonl:1: Expected id, request_id, digest"),
        ('[{"data": {"image": "a.jpg"}, "annotations": [{"result": [{"type": "brushlabels"}]}]}]', "got 'brushlabels'"),
        ('[{"data": {"image": "a.jpg"}, "annotations": [{"result": [{"type": "polygonlabels"}]}]}]', "original_width"),
        ('[{"data": {"text": "a"}, "annotations": [{"result": []}]}]', "Expected the name or the URL of an image"),
        (
            '[{"data": {"image": "a.jpg"}, "annotations": [{"result": [{"type": "rectanglelabels", '
            '"image_rotation": 90}]}]}]',
            "image_rotation: Expected 0",
        ),
        ('[{"data": {"image": "a.jpg"}, "annotations": [{"result": [{"value": [1]}]}]}]', "value: Expected an object"),
        ('[{"tasks": 1}]', "Expected the tasks of Label Studio"),
    ],
)
def test_label_that_cannot_be_used_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / ("labels.json" if content.startswith("[") else "labels.jsonl")
    path.write_text(content)
    with pytest.raises(EvaluationError, match=message.replace("[", r"\[")):
        read_labels(path, None, DatasetOptions())


def test_truths_replace_answers_in_a_data_set_for_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_store(tmp_path / "store.db", detection("a", DOG), detection("b", DOG))
    (tmp_path / "labels.jsonl").write_text(json.dumps({"id": "a-0-0", "records": [CAR]}))
    import_truth(store, tmp_path / "labels.jsonl")
    inferences(store, to=tmp_path / "next.json", content="truth")
    assert "Skipped 1 inference: " in (messages := " ".join(capsys.readouterr().err.split()))
    assert "--with truth needs the complete right records" in messages
    written = json.loads((tmp_path / "next.json").read_text())
    assert [item["bbox"] for item in written["annotations"]] == [[10, 10, 20, 20]]
