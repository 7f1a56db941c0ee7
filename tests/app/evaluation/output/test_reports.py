"""Reports as JSON, as a table and as a page, and their escaping of hostile text."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.evaluation.dataset import Dataset, Item, LabelledObject
from app.evaluation.evaluation import evaluate_records
from app.evaluation.extras import EvaluationError, import_optional
from app.evaluation.output.html import html_report
from app.evaluation.output.plain import json_report
from app.evaluation.output.table import print_report
from app.evaluation.report import EvaluationReport
from tasks.task import TaskType
from tests.support.evaluation_samples import write_image

HOSTILE = "<script>alert(1)</script> [bold]&\"'"


def report(folder: Path, label: str = HOSTILE, **options: Any) -> EvaluationReport:
    """Report on three images with one object each: a miss with a wrong finding, a hit, and a failed request."""
    truth = LabelledObject(label=label, box=(5, 5, 30, 30))
    items = [
        Item(id=name, image=write_image(folder / f"{index}.png"), width=64, height=48, objects=(truth,))
        for index, name in enumerate((HOSTILE, "b.png", "c.png"))
    ]
    data = Dataset(
        path=folder / "labels.json",
        format="coco",
        tasks=(TaskType.OBJECT_DETECTION,),
        labels=(label,),
        items=tuple(items),
    )
    records: Mapping[str, Sequence[Mapping[str, object]]] = {
        HOSTILE: [{"label": label, "score": 0.9, "xmin": 40, "ymin": 5, "xmax": 60, "ymax": 30}],
        "b.png": [{"label": label, "score": 0.8, "xmin": 5, "ymin": 5, "xmax": 30, "ymax": 30}],
    }
    return evaluate_records(data, records, {"c.png": HOSTILE}, HOSTILE, notes=[HOSTILE], **options)


def test_json_report_has_figures_failures_and_mistakes(tmp_path: Path) -> None:
    parsed = json.loads(json_report(report(tmp_path)))
    assert (parsed["task"], parsed["images"], parsed["measured"]) == ("OBJECT_DETECTION", 3, 2)
    assert parsed["figures"]["recall"] == 0.5
    assert parsed["failures"] == {"c.png": HOSTILE}
    assert parsed["mistakes"] == [
        {
            "id": HOSTILE,
            "why": "1 missed, 1 wrong, 0 right",
            "missed": [{"label": HOSTILE, "place": ""}],
            "wrong": [{"label": HOSTILE, "score": 0.9}],
        }
    ]
    assert any("1 of 3 were not answered" in note for note in parsed["notes"])


def test_page_has_no_scripts_and_no_external_resources(tmp_path: Path) -> None:
    page = html_report(report(tmp_path)).decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert 'class="missed"' in page
    assert 'class="wrong"' in page
    sources = re.findall(r'(?:src|href)="([^"]{0,22})', page)
    assert sources == ["data:image/jpeg;base64"]
    assert "http" not in re.sub(r"http-equiv", "", page)


def test_page_without_worst_images(tmp_path: Path) -> None:
    page = html_report(report(tmp_path), 0).decode()
    assert "data:image" not in page.partition("</head>")[2]


def test_page_is_written_without_a_deleted_image(tmp_path: Path) -> None:
    result = report(tmp_path)
    (tmp_path / "0.png").unlink()
    assert "1 missed, 1 wrong" in html_report(result).decode()


def test_table_shows_figures_and_failures(tmp_path: Path) -> None:
    written = io.StringIO()
    print_report(report(tmp_path), Console(file=written, width=200))
    text = written.getvalue()
    assert HOSTILE in text
    assert "2 of 3 images measured" in text
    assert "not answered c.png" in text


def test_many_classes_are_listed_without_confusion_matrix(tmp_path: Path) -> None:
    labels = [f"c{index}" for index in range(60)]
    items = tuple(Item(id=f"{label}.png", image=tmp_path / "x.png", label=label) for label in labels)
    data = Dataset(
        path=tmp_path, format="image-folder", tasks=(TaskType.IMAGE_CLASSIFICATION,), labels=tuple(labels), items=items
    )
    records = {f"{label}.png": [{"label": "c0", "score": 1.0}] for label in labels}
    result = evaluate_records(data, records, {}, "m")
    page = html_report(result).decode()
    assert 'class="matrix"' not in page
    assert "What was taken for what" in page
    written = io.StringIO()
    print_report(result, Console(file=written, width=160))
    assert "and 20 more rows" in written.getvalue()


def test_labels_unknown_to_the_dataset_are_noted(tmp_path: Path) -> None:
    notes = report(tmp_path, label_map={HOSTILE: "elsewhere"}).notes
    assert any(note.startswith("NOT ONE label") for note in notes)
    assert any("elsewhere (2)" in note for note in notes)


def test_unreadable_answer_is_a_failure(tmp_path: Path) -> None:
    items = tuple(Item(id=name, image=tmp_path / name, label="a") for name in ("1", "2"))
    data = Dataset(
        path=tmp_path, format="image-folder", tasks=(TaskType.IMAGE_CLASSIFICATION,), labels=("a",), items=items
    )
    result = evaluate_records(data, {"1": [{"label": "a", "score": 9}], "2": [{"label": "a", "score": 1}]}, {}, "m")
    assert result.measured == 1
    assert result.failures == {"1": "The answer cannot be read: score: Expected a number within 0..1, got 9.0"}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"label": "a", "score": 1}], "labels of OBJECT_DETECTION; the answers are of IMAGE_CLASSIFICATION"),
        ([{"answer": "a"}], "the answers are of IMAGE_TEXT_TO_TEXT"),
    ],
)
def test_answers_of_another_task_are_rejected(tmp_path: Path, records: Any, message: str) -> None:
    items = (Item(id="1", image=tmp_path / "1"),)
    data = Dataset(path=tmp_path, format="coco", tasks=(TaskType.OBJECT_DETECTION,), items=items)
    with pytest.raises(EvaluationError, match=message):
        evaluate_records(data, {"1": records}, {}, "m")


def test_mixed_tasks_and_unknown_slices_are_rejected(tmp_path: Path) -> None:
    items = tuple(Item(id=name, image=tmp_path / name, metadata={"camera": "a"}) for name in ("1", "2"))
    data = Dataset(path=tmp_path, format="coco", tasks=(TaskType.OBJECT_DETECTION,), items=items)
    mixed = {"1": [{"xmin": 1}], "2": [{"answer": "a"}]}
    with pytest.raises(
        EvaluationError, match="Expected answers of one task, got IMAGE_TEXT_TO_TEXT and OBJECT_DETECTION"
    ):
        evaluate_records(data, mixed, {}, "m")
    with pytest.raises(EvaluationError, match="no image has metadata called 'hour'; there is camera"):
        evaluate_records(data, {}, {}, "m", slices=["hour"])


def test_slices_with_too_many_values_are_rejected(tmp_path: Path) -> None:
    items = tuple(Item(id=str(n), image=tmp_path / "x.png", metadata={"frame": str(n)}) for n in range(300))
    data = Dataset(path=tmp_path, format="coco", tasks=(TaskType.OBJECT_DETECTION,), items=items)
    with pytest.raises(EvaluationError, match="Expected at most 200 values of 'frame', got 300"):
        evaluate_records(data, {}, {}, "m", slices=["frame"])


def test_missing_extra_is_named() -> None:
    with pytest.raises(EvaluationError, match=r"needs the extra evaluate, .*nothing_like_it"):
        import_optional("nothing_like_it")
