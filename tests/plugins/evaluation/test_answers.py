"""Parsing of records, mapping of labels, and comparison and matching of answers without labels or recorded."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.plugins.evaluation.agreement import compare_answers
from app.plugins.evaluation.answers import infer_task, parse_records
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item
from app.plugins.evaluation.evaluation import map_labels, read_label_map
from app.plugins.evaluation.recorded_answers import match_recorded, read_recorded
from app.plugins.recording.inference import RecordedImage, RecordedInference
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.sqlite_store import SqliteStore
from metadata.request import MetadataEntry
from tasks.task import TaskType
from tests.support.data.evaluation_samples import dataset, detection_sample, item, write_image
from tests.support.data.recorded_rows import recorded_inference

BOX = {"label": "cat", "score": 0.5, "xmin": 1, "ymin": 2, "xmax": 3.0, "ymax": 4}
ORIENTED = {"label": "cat", "score": 0.5, "cx": 0.5, "cy": 0.5, "w": 0.1, "h": 0.1, "r": 0}
SEGMENT = {"label": "cat", "score": 0.5, "contour": [[{"x": 0, "y": 0}, {"x": 4, "y": 0}, {"x": 4, "y": 4}]]}


@pytest.mark.parametrize(
    ("records", "task"),
    [
        ([], None),
        ([{"label": "a", "score": 1}], TaskType.IMAGE_CLASSIFICATION),
        ([BOX], TaskType.OBJECT_DETECTION),
        ([ORIENTED], TaskType.ORIENTED_OBJECT_DETECTION),
        ([SEGMENT], TaskType.IMAGE_SEGMENTATION),
        ([{"prompt": "?", "answer": "a"}], TaskType.IMAGE_TEXT_TO_TEXT),
    ],
)
def test_task_is_inferred_from_record_fields(records: Sequence[Any], task: TaskType | None) -> None:
    assert infer_task(records) == task


def test_labels_with_an_unknown_place_are_no_classification() -> None:
    with pytest.raises(ValueError, match="got records with label, score, box"):
        infer_task([{"label": "a", "score": 1, "box": {"xmin": 1}}])


def test_records_are_parsed_into_findings() -> None:
    (found,) = parse_records([BOX], item(), TaskType.OBJECT_DETECTION).predictions
    assert (found.label, found.score, found.box) == ("cat", 0.5, (1, 2, 3, 4))
    (found,) = parse_records([SEGMENT], item(), TaskType.IMAGE_SEGMENTATION).predictions
    assert found.rings == (((0, 0), (4, 0), (4, 4)),)
    (found,) = parse_records([ORIENTED], item(size=(100, 50)), TaskType.ORIENTED_OBJECT_DETECTION).predictions
    (corners,) = found.outlines
    assert [round(value, 9) for point in corners for value in point] == [45, 22.5, 55, 22.5, 55, 27.5, 45, 27.5]


@pytest.mark.parametrize(
    ("record", "task", "message"),
    [
        (
            {**BOX, "xmin": float("nan")},
            TaskType.OBJECT_DETECTION,
            "xmin: Expected finite numbers within 1000000 of 0, got nan",
        ),
        ({**BOX, "xmin": 10**400}, TaskType.OBJECT_DETECTION, "xmin: Number out of range"),
        ({**BOX, "xmin": -1e7}, TaskType.OBJECT_DETECTION, "xmin: Expected finite numbers within 1000000 of 0, got -1"),
        ({**BOX, "xmax": True}, TaskType.OBJECT_DETECTION, "xmax: Expected `float`, got `bool`"),
        ({**BOX, "score": 7}, TaskType.OBJECT_DETECTION, "score: Expected a number within 0..1, got 7"),
        ({**BOX, "score": "x"}, TaskType.OBJECT_DETECTION, "score: Expected `float`, got `str`"),
        ({**BOX, "label": 1}, TaskType.OBJECT_DETECTION, "label: Expected `str`, got `int`"),
        ({**ORIENTED, "r": float("inf")}, TaskType.ORIENTED_OBJECT_DETECTION, "r: Expected finite numbers"),
        ({**SEGMENT, "contour": 3}, TaskType.IMAGE_SEGMENTATION, "contour: Expected `array`, got `int`"),
        (
            {**SEGMENT, "contour": [[1]]},
            TaskType.IMAGE_SEGMENTATION,
            r"contour\[0\]\[0\]: Expected `object`, got `int`",
        ),
        ({"answer": 1}, TaskType.IMAGE_TEXT_TO_TEXT, "Expected one answer to the question"),
    ],
)
def test_error_names_the_invalid_field(record: dict[str, Any], task: TaskType, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_records([record], item(), task)


@pytest.mark.parametrize(("score", "expected"), [(1.000001, 1), (-1e-7, 0), (1, 1), (0.25, 0.25)])
def test_scores_slightly_out_of_range_are_clipped(score: float, expected: float) -> None:
    (found,) = parse_records([{**BOX, "score": score}], item(), TaskType.OBJECT_DETECTION).predictions
    assert found.score == expected


def test_labels_are_mapped_or_dropped(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text('{"feline": "cat", "person": null}')
    names = read_label_map(path, ["cat", "dog"])
    box = (0.0, 0.0, 1.0, 1.0)
    answered = map_labels(detection_sample([], [("feline", 0.9, box), ("person", 0.8, box), ("dog", 0.7, box)]), names)
    assert [finding.label for finding in answered.predictions] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": "yak"}', "'yak' is not a label of the dataset; it has cat, dog"),
        ("[]", "Expected the dataset's label, or null"),
    ],
)
def test_invalid_label_map_is_rejected(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "map.json"
    path.write_text(content)
    with pytest.raises(EvaluationError, match=message):
        read_label_map(path, ["cat", "dog"])


Answer = Sequence[dict[str, object]]


def sized_item(name: str) -> Item:
    return Item(id=name, image=Path(name), width=200, height=100)


def box(label: str, score: float, left: float, width: float = 10) -> dict[str, object]:
    return {"label": label, "score": score, "xmin": left, "ymin": 0.0, "xmax": left + width, "ymax": 10.0}


def test_objects_agree_if_they_have_a_partner() -> None:
    expected: Answer = [box("a", 0.9, 0), box("a", 0.8, 50), box("b", 0.7, 100)]
    found: Answer = [box("a", 0.85, 50), box("a", 0.9, 0, 8), box("c", 0.7, 100)]
    agreement = compare_answers([sized_item("x")], {"x": expected}, {"x": found})
    assert (agreement.matched, agreement.labels) == (2, 0)
    assert agreement.mean_iou == pytest.approx(0.9)
    assert agreement.score_difference == pytest.approx(0.05)


A_FIRST: Answer = [{"label": "a", "score": 0.6}, {"label": "b", "score": 0.4}]
B_FIRST: Answer = [{"label": "b", "score": 0.55}, {"label": "a", "score": 0.45}]


@pytest.mark.parametrize(
    ("expected", "found", "matched", "difference"),
    [
        ([], [box("a", 1, 0)], 1, 0),
        (A_FIRST, B_FIRST, None, 0.15),
        ([{"prompt": "p", "answer": "two"}], [{"prompt": "p", "answer": "2"}], None, 0),
    ],
    ids=["objects", "classes", "texts"],
)
def test_images_agree_by_their_labels_the_best_class_or_the_text(
    expected: Answer, found: Answer, matched: int | None, difference: float
) -> None:
    items = [sized_item("x"), sized_item("y")]
    agreement = compare_answers(items, {"x": expected, "y": found}, {"x": found, "y": found})
    assert (agreement.labels, agreement.matched) == (0.5, matched)
    assert agreement.score_difference == pytest.approx(difference)


def test_answers_that_are_not_finite_cannot_be_compared() -> None:
    answers = {"x": [box("a", float("nan"), 0)]}
    with pytest.raises(
        EvaluationError, match="cannot be compared: score: Expected finite numbers within 1000000 of 0, got nan"
    ):
        compare_answers([sized_item("x")], answers, answers)


def contour(*xs: int) -> dict[str, object]:
    points = [(xs[0], 0), (xs[1], 0), (xs[1], 40), (xs[0], 40)]
    return {"label": "a", "score": 1.0, "contour": [[{"x": x, "y": y} for x, y in points]]}


def oriented(width: float) -> dict[str, object]:
    return {"label": "a", "score": 1.0, "cx": 0.5, "cy": 0.5, "w": width, "h": 0.1, "r": 0.3}


@pytest.mark.parametrize(("expected", "found"), [(contour(0, 100), contour(0, 80)), (oriented(0.5), oriented(0.4))])
def test_outlines_are_compared_by_their_area(expected: dict[str, object], found: dict[str, object]) -> None:
    agreement = compare_answers([sized_item("x")], {"x": [expected]}, {"x": [found]})
    assert agreement.mean_iou == pytest.approx(0.8, abs=0.02)


CAT: Sequence[Mapping[str, object]] = [{"label": "cat", "score": 0.9}]
DOG: Sequence[Mapping[str, object]] = [{"label": "dog", "score": 0.8}]


def three_images(folder: Path) -> Dataset:
    images = [write_image(folder / f"{index}.png", 8, 8, (index, 0, 0)) for index in range(3)]
    return dataset(folder, *(Item(id=image.name, image=image, label="cat") for image in images))


def recorded(records: Any, *, image: Path | None = None, name: str | None = None, **changes: Any) -> RecordedInference:
    digest = hashlib.sha256(image.read_bytes()).hexdigest() if image else "0" * 64
    metadata = [MetadataEntry("file_name", "str", name)] if name else []
    image_of = RecordedImage(digest=digest, width=8, height=8, size=1)
    values: dict[str, Any] = {"model": "classifier", "records": records, "image": image_of, "metadata": metadata}
    return recorded_inference(**{**values, **changes})


def test_trials_in_a_store_are_left_out(tmp_path: Path) -> None:
    trial = msgspec.structs.replace(recorded(DOG, name="1.png", started=9, reason="trial"), id="2-0-0")
    store = SqliteStore(tmp_path / "recorded.db")
    store.open()
    store.write([to_rows(recorded(CAT, name="1.png", started=5)), to_rows(trial)])
    store.close()
    assert read_recorded(three_images(tmp_path), str(tmp_path / "recorded.db"), None).records == {"1.png": CAT}
    (tmp_path / "chosen.jsonl").write_bytes(msgspec.json.encode(trial))
    assert read_recorded(three_images(tmp_path), str(tmp_path / "chosen.jsonl"), None).records == {"1.png": DOG}


def test_recordings_match_by_digest_and_by_name(tmp_path: Path) -> None:
    data = three_images(tmp_path)
    collected, model, repeated = match_recorded(
        data,
        [recorded(CAT, image=data.items[0].image), recorded(DOG, name="frames/2.png"), recorded(DOG, name="9.png")],
    )
    assert collected.records == {"0.png": CAT, "2.png": DOG}
    assert collected.failures == {"1.png": "was not recorded"}
    assert (model, repeated) == ("classifier:1", 0)


def test_name_of_several_images_matches_none(tmp_path: Path) -> None:
    items = [Item(id=name, image=write_image(tmp_path / name, 8, 8)) for name in ("a/1.png", "b/1.png")]
    data = dataset(tmp_path, *items)
    collected, _, _ = match_recorded(data, [recorded(CAT, name="1.png"), recorded(DOG, name="b/1.png")])
    assert collected.records == {"b/1.png": DOG}
    assert collected.failures == {"a/1.png": "was not recorded by file, or by name with folder"}
    with pytest.raises(EvaluationError, match="file names that several images have need their folder there"):
        match_recorded(data, [recorded(CAT, name="1.png")])


@pytest.mark.parametrize("later_first", [False, True])
def test_latest_recording_is_used(tmp_path: Path, later_first: bool) -> None:
    data = three_images(tmp_path)
    recordings = [recorded(CAT, name="0.png", started=5), recorded(DOG, name="0.png", started=9)]
    collected, _, repeated = match_recorded(data, recordings[::-1] if later_first else recordings)
    assert (collected.records["0.png"], repeated) == (DOG, 1)


def test_errors_and_explanations_are_ignored(tmp_path: Path) -> None:
    data = three_images(tmp_path)
    recordings = [recorded(None, name="0.png"), recorded(CAT, name="0.png", explanation=True)]
    with pytest.raises(EvaluationError, match="None of the 3 images was recorded"):
        match_recorded(data, recordings)


def test_recordings_of_several_models_or_versions_need_a_choice(tmp_path: Path) -> None:
    data, first = three_images(tmp_path), recorded(CAT, name="0.png")
    recordings = [first, recorded(DOG, name="1.png", model="other")]
    with pytest.raises(EvaluationError, match="got classifier:1, other:1; choose with --name"):
        match_recorded(data, recordings)
    assert match_recorded(data, recordings, "other")[0].records == {"1.png": DOG}
    with pytest.raises(EvaluationError, match=r"got classifier:1, classifier:2; export one .* --model-version"):
        match_recorded(data, [first, recorded(DOG, name="1.png", version="2")], "classifier")
