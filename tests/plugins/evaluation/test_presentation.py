"""Reports as JSON, as a table and as a page, and their escaping of hostile text."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.plugins.evaluation.collection import CollectedAnswers
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item, LabelledObject, import_optional
from app.plugins.evaluation.evaluation import check_slices, evaluate_records
from app.plugins.evaluation.presentation import PRINTED_FIGURES, present, values_of
from app.plugins.evaluation.report import EvaluationReport
from app.report import html_report, print_report, to_json
from tasks.task import TaskType
from tests.support.data.evaluation_samples import dataset, write_image

HOSTILE = "<script>alert(1)</script> [bold]&\"'"


def report(folder: Path, label: str = HOSTILE, **options: Any) -> EvaluationReport:
    """Report on three images with one object each: a miss with a wrong finding, a hit, and a failed request."""
    truth = LabelledObject(label=label, box=(5, 5, 30, 30))
    items = [
        Item(id=name, image=write_image(folder / f"{index}.png"), width=64, height=48, objects=(truth,))
        for index, name in enumerate((HOSTILE, "b.png", "c.png"))
    ]
    data = dataset(folder / "labels.json", *items, task=TaskType.OBJECT_DETECTION, labels=[label])
    records: dict[str, Sequence[Mapping[str, object]]] = {
        HOSTILE: [{"label": label, "score": 0.9, "xmin": 40, "ymin": 5, "xmax": 60, "ymax": 30}],
        "b.png": [{"label": label, "score": 0.8, "xmin": 5, "ymin": 5, "xmax": 30, "ymax": 30}],
    }
    return evaluate_records(data, CollectedAnswers(records, {"c.png": HOSTILE}, HOSTILE, [HOSTILE]), **options)


def measured(data: Dataset, records: dict[str, Any]) -> EvaluationReport:
    return evaluate_records(data, CollectedAnswers(records))


def printed(result: EvaluationReport, width: int) -> str:
    """Return what a terminal of that width shows."""
    written = io.StringIO()
    print_report(present(result, with_images=False), Console(file=written, width=width), max_figures=PRINTED_FIGURES)
    return written.getvalue()


def page_of(result: EvaluationReport) -> str:
    return html_report(present(result, with_images=True)).decode()


def json_of(result: EvaluationReport) -> Any:
    return json.loads(to_json(values_of(result)))


def test_json_report_has_figures_failures_and_mistakes(tmp_path: Path) -> None:
    parsed = json_of(report(tmp_path))
    assert (parsed["task"], parsed["images"], parsed["measured"]) == ("OBJECT_DETECTION", 3, 2)
    assert parsed["figures"]["recall"] == 0.5
    assert parsed["failures"] == {"c.png": HOSTILE}
    missed, wrong = [{"label": HOSTILE, "location": ""}], [{"label": HOSTILE, "score": 0.9}]
    description = "1 missed, 1 wrong, 0 right"
    assert parsed["mistakes"] == [{"id": HOSTILE, "description": description, "missed": missed, "wrong": wrong}]
    assert any("1 of 3 were not answered" in note for note in parsed["notes"])


def test_page_has_no_scripts_and_no_external_resources(tmp_path: Path) -> None:
    page = page_of(report(tmp_path))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert 'class="missed"' in page
    assert 'class="wrong"' in page
    sources = re.findall(r'(?:src|href)="([^"]{0,22})', page)
    assert sources == ["data:image/jpeg;base64"]
    assert "http" not in re.sub(r"http-equiv", "", page)


def test_page_is_written_without_a_deleted_image(tmp_path: Path) -> None:
    result = report(tmp_path)
    (tmp_path / "0.png").unlink()
    assert "1 missed, 1 wrong" in page_of(result)


def test_terminal_shows_five_figures_failures_and_what_chariots_figure_compares_with(tmp_path: Path) -> None:
    text = printed(report(tmp_path), 200)
    assert HOSTILE in text
    assert "2 of 3 images measured" in text
    assert re.search(r"^│ c.png +│ <script>", text, re.MULTILINE)
    figures = ["map_coco", "ap50", "mAPAveragedOverIOUs", "precision", "recall"]
    assert re.findall(r"^│ (\w+)", text, re.MULTILINE)[:-1] == figures
    assert "compare it with map_coco, not with ap50" in text
    assert "Classes" not in text


def test_many_classes_are_listed_without_confusion_matrix(tmp_path: Path) -> None:
    labels = [f"c{index}" for index in range(60)]
    data = dataset(tmp_path, *(Item(id=label, image=tmp_path, label=label) for label in labels), labels=labels)
    page = page_of(measured(data, {label: [{"label": "c0", "score": 1.0}] for label in labels}))
    assert 'class="matrix"' not in page
    assert "What was taken for what" in page


def test_labels_unknown_to_the_dataset_are_noted_in_one_line(tmp_path: Path) -> None:
    (note,) = (note for note in report(tmp_path, label_map={HOSTILE: "elsewhere"}).notes if "elsewhere" in note)
    assert note.startswith("The model and the dataset share no label")
    assert "Found labels that the dataset does not have count in mAPAveragedOverIOUs only" in note
    assert "elsewhere (2)" in note


def test_labels_unknown_to_the_dataset_share_a_column(tmp_path: Path) -> None:
    items = tuple(Item(id=name, image=write_image(tmp_path / name), label=name[0]) for name in ("a.png", "b.png"))
    data = dataset(tmp_path, *items, labels=["a", "b"])
    records = {"a.png": [{"label": "a", "score": 1.0}], "b.png": [{"label": "stray", "score": 1.0}]}
    page = page_of(measured(data, records))
    matrix = page[page.index('class="matrix"') : page.index("What was taken for what")]
    assert "other labels" in matrix
    assert "stray" not in matrix
    assert '<td>b</td><td>stray</td><td class="number">1</td>' in page


def test_images_too_large_for_masks_are_not_measured(tmp_path: Path) -> None:
    objects = (LabelledObject(label="a", rings=(((0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)),)),)
    items = [Item(id=str(side), image=tmp_path, width=side, height=side, objects=objects) for side in (20, 60_000)]
    data = dataset(tmp_path, *items, task=TaskType.IMAGE_SEGMENTATION, labels=["a", "b"])
    contour = [[{"x": x, "y": y} for x, y in ((0, 0), (3, 0), (3, 3), (0, 3))]]
    records = {item.id: [{"label": "a", "score": 0.9, "contour": contour}] for item in items}
    result = measured(data, records)
    assert {figure.value for figure in result.measures.figures} == {1.0}
    assert "1 images of more than 268435456 pixels are in no figure." in result.notes


def test_unreadable_answer_is_a_failure(tmp_path: Path) -> None:
    items = tuple(Item(id=name, image=tmp_path / name, label="a") for name in ("1", "2"))
    data = dataset(tmp_path, *items, labels=["a"])
    result = measured(data, {"1": [{"label": "a", "score": 9}], "2": [{"label": "a", "score": 1}]})
    assert result.measured == 1
    assert result.failures == {"1": "The answer cannot be read: score: Expected a number within 0..1, got 9.0"}


def test_answers_of_mixed_tasks_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="one task, got IMAGE_TEXT_TO_TEXT and OBJECT_DETECTION"):
        measured(dataset(tmp_path), {"1": [{"xmin": 1}], "2": [{"answer": "a"}]})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("hour", "no image has metadata called 'hour'; there is frame"),
        ("frame", "at most 200 values of 'frame', got 300"),
    ],
)
def test_slices_without_or_with_too_many_values_are_rejected(tmp_path: Path, key: str, message: str) -> None:
    items = (Item(id=str(n), image=tmp_path, metadata={"frame": str(n)}) for n in range(300))
    with pytest.raises(EvaluationError, match=message):
        check_slices(dataset(tmp_path, *items), [key])


def test_missing_extra_is_named() -> None:
    with pytest.raises(EvaluationError, match=r"needs the extra evaluate, .*nothing_like_it"):
        import_optional("nothing_like_it")
