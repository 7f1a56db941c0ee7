"""Evaluation of recorded answers by their truths, without another data set."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.plugins.evaluation.collection import CollectedAnswers
from app.plugins.evaluation.command import ReportOptions, evaluate
from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.datasets.files import DatasetOptions
from app.plugins.evaluation.datasets.read import read_dataset
from app.plugins.evaluation.evaluation import evaluate_records
from app.plugins.evaluation.recorded_answers import read_truths
from app.plugins.recording.command import inferences
from app.plugins.recording.inference import Truth
from tests.plugins.evaluation.truths.recorded import CAR, DOG, PART, SHIP, detection, found
from tests.support.data.recorded_rows import write_store

FAR: dict[str, object] = {**CAR, "xmin": 40.0, "xmax": 60.0}


def truth(verdict: Any, *records: dict[str, object], complete: bool = True) -> Truth:
    return Truth(verdict=verdict, records=records or None, complete=complete)


def figures(store: str) -> dict[str, float | None]:
    dataset, collected, _ = read_truths(store, None, None, "sample")
    report = evaluate_records(dataset, collected)
    return {figure.name: figure.value for figure in report.measures.figures}


@pytest.fixture
def store(tmp_path: Path) -> str:
    return write_store(
        tmp_path / "store.db",
        detection("a", CAR, truth=truth("right", CAR)),
        detection("b", CAR, truth=truth("wrong", FAR)),
        detection("c", CAR, truth=truth("right")),
        detection("d", CAR, truth=truth("right", CAR, complete=False)),
        detection("e", CAR, truth=truth("wrong", DOG), reason="unsure"),
        detection("f", CAR),
    )


def test_report_has_the_metrics_of_complete_truths_and_the_share_of_right_answers(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(recorded=store, wanted=ReportOptions(json=tmp_path / "report.json", fail_under=["right=0.75"]))
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["images"], report["source"]) == (2, "detector:1, as recorded")
    assert [report["figures"][name] for name in ("right", "recall", "precision")] == [0.75, 0.5, 0.5]
    assert "2 truths without complete records count only for the right answers." in report["notes"]
    with pytest.raises(SystemExit) as exited:
        evaluate(recorded=store, wanted=ReportOptions(fail_under=["right=0.8"]))
    assert exited.value.code == 1
    assert "right is 0.7500, below the minimum 0.8" in capsys.readouterr().err


def test_objects_of_a_label_without_truths_are_mistakes(tmp_path: Path) -> None:
    recorded = detection("a", records=found(CAR, DOG), truth=truth("wrong", CAR))
    assert figures(write_store(tmp_path / "store.db", recorded))["precision"] == 0.5


def test_inferences_of_all_reasons_come_with_a_note(store: str) -> None:
    dataset, _, (right,) = read_truths(store, None, None, "any")
    assert right.value == pytest.approx(3 / 5)
    assert "Rules select difficult images, so that the model seems worse than it is." in dataset.notes
    assert read_truths(store, None, None, "unsure")[2][0].value == 0


@pytest.mark.parametrize(
    ("task", "answer", "right"),
    [("OBJECT_DETECTION", [CAR, FAR], [CAR, DOG]), ("ORIENTED_OBJECT_DETECTION", [SHIP], [{**SHIP, "cx": 0.6}])],
)
def test_figures_equal_those_of_the_exported_labels(
    tmp_path: Path, task: str, answer: list[dict[str, object]], right: list[dict[str, object]]
) -> None:
    recorded = detection("a", records=found(*answer), task_type=task, truth=truth("wrong", *right))
    store = write_store(tmp_path / "store.db", recorded)
    dataset, collected, _ = read_truths(store, None, None, "sample")
    own = evaluate_records(dataset, collected, confidence=0.1)
    inferences(store, to=tmp_path / "labels.json", content="truth")
    labels = read_dataset(tmp_path / "labels.json", DatasetOptions(needs_images=False))
    if task == "ORIENTED_OBJECT_DETECTION":
        (item,) = labels.items
        items = (msgspec.structs.replace(item, objects=(msgspec.structs.replace(item.objects[0], box=None),)),)
        labels = msgspec.structs.replace(labels, tasks=dataset.tasks, items=items)
    answers = CollectedAnswers({labels.items[0].id: recorded.records or ()})
    exported = evaluate_records(labels, answers, confidence=0.1)
    for figure, expected in zip(own.measures.figures, exported.measures.figures, strict=True):
        assert figure.value == pytest.approx(expected.value, abs=0.02), figure.name


def test_classes_contours_and_answers_to_questions_are_measured(tmp_path: Path) -> None:
    classes = [{"label": "cat", "score": 0.75}, {"label": "dog", "score": 0.25}]
    cases: list[tuple[str, Any, dict[str, object], str, float]] = [
        ("IMAGE_SEGMENTATION", found(PART), PART, "map_coco", 1),
        ("IMAGE_CLASSIFICATION", classes, {"label": "dog"}, "accuracy", 0),
        ("IMAGE_TEXT_TO_TEXT", [{"prompt": "Which?", "answer": "cat"}], {"answer": "dog"}, "exact_match", 0),
    ]
    for task, records, right, figure, expected in cases:
        wrong = detection("a", records=records, task_type=task, truth=truth("wrong", right))
        assert figures(write_store(tmp_path / f"{task}.db", wrong))[figure] == expected


def test_missing_truths_and_several_models_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = detection("b", CAR, truth=truth("right"), version="2")
    store = write_store(tmp_path / "store.db", detection("a", CAR, truth=truth("right")), other)
    with pytest.raises(EvaluationError, match="Expected truths of one model, got detector:1, detector:2; export one"):
        read_truths(store, None, None, "sample")
    with pytest.raises(EvaluationError, match="No inference with --reason sample has a truth; --reason any"):
        read_truths(store, "ship", None, "sample")
    with pytest.raises(SystemExit):
        evaluate()
    assert "Expected --dataset with labelled data, or --recorded with a store" in capsys.readouterr().err
