"""``charioteer inferences``, run in this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.settings.server import SettingsError
from app.plugins.recording.command import inferences
from app.plugins.recording.inference_query import InferenceQuery
from tasks.inference.error import InferenceError
from tests.support.command_line import charioteer
from tests.support.data.recorded_rows import recorded_rows, write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Create a store with three inferences."""
    cars = [{"label": "[bold]car", "score": 0.9}] * 2 + [{"label": "dog", "score": 0.8}]
    return write_store(
        tmp_path_factory.mktemp("cli") / "store.db",
        recorded_rows("first", {"camera": "north", "latitude": 48.1, "longitude": 11.5}, cars),
        recorded_rows("second", {"camera": "south"}, [{"prompt": "p", "answer": "a blue star"}], model="vlm"),
        recorded_rows("third", {}, None, error="model_failed"),
    )


def test_inferences_are_shown_as_a_table(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    inferences(store)
    output = capsys.readouterr().out
    for text in ("2 [bold]car, 1 dog", "camera=north", "a blue star", "model_failed", "1970-01-01 00:00:01", "second"):
        assert text in output
    assert output.index("third") < output.index("second") < output.index("first")


def test_best_class_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classes = [{"label": "cat", "score": 0.75}, {"label": "dog", "score": 0.25}]
    inferences(write_store(tmp_path / "store.db", recorded_rows("a", {}, classes, task_type="IMAGE_CLASSIFICATION")))
    assert "cat 0.75" in capsys.readouterr().out


def test_output_names_the_option_for_the_next_page(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    inferences(store, limit=2)
    assert capsys.readouterr().out.endswith("There are more: --after 2\n")
    inferences(store, limit=2, after=2)
    output = capsys.readouterr().out
    assert "first" in output
    assert "There are more" not in output
    inferences(store, query=InferenceQuery(label="cat"))
    assert capsys.readouterr().out == "No inference matches\n"


def test_options_are_parsed_into_a_query(store: str) -> None:
    options = ["--where", 'camera = "north"', "--where", "longitude < 12"]
    done = charioteer("inferences", store, *options, "--min-score", "0.9", "--model-version", "1", "--json")
    page = json.loads(done.stdout)
    assert ([row["id"] for row in page["inferences"]], page["next"]) == (["first"], None)


def test_id_shows_one_inference(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    inferences(store, id="second")
    assert json.loads(capsys.readouterr().out)["model"] == "vlm"
    with pytest.raises(InferenceError, match="There is no inference 'missing'"):
        inferences(store, id="missing")


def test_matches_are_exported(store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    inferences(store, to=tmp_path / "a.jsonl")
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3
    inferences(store, to=tmp_path / "a.data", format="jsonl", limit=2, query=InferenceQuery(until="1s"))
    assert len((tmp_path / "a.data").read_text().splitlines()) == 2
    inferences(store, to=tmp_path / "one.jsonl", limit=1)
    inferences(store, to=tmp_path / "a.json")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Wrote 3 inferences to" in captured.err
    assert "Wrote 1 inference to" in captured.err
    assert "Skipped 3 inferences: COCO holds only objects in images of known size" in captured.err


def test_export_reports_objects_with_redacted_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    box = {"label": "car", "score": "[redacted]", "xmin": 1, "ymin": 1, "xmax": 2, "ymax": 2}
    image = {"digest": "ab" * 32, "width": 8, "height": 8, "size": 1}
    fields = {"id": "a", "protocol": "v2", "model": "m", "started": 0, "duration": 1, "task_type": "OBJECT_DETECTION"}
    (tmp_path / "a.jsonl").write_text(json.dumps(fields | {"records": [box, box], "image": image}))
    inferences(str(tmp_path / "a.jsonl"), to=tmp_path / "a.json")
    expected = "2 objects left out: a label, score or place that cannot be read, such as a redacted one"
    assert expected in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": InferenceQuery(where=["camera"])}, "where: Expected conditions"),
        ({"to": Path("a.txt")}, "Expected a file that ends in"),
        ({"to": Path("a.jsonl"), "json": True}, "--to exports all matches"),
        ({"format": "jsonl"}, "--format: no effect without --to"),
        ({"id": "second", "query": InferenceQuery(label="car")}, "--id prints one inference and cannot be combined"),
        ({"store": "none.db"}, "there is no such file"),
        ({"store": "mysql://x/y"}, "The store has an unknown scheme"),
    ],
)
def test_invalid_arguments_are_rejected(store: str, options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"store": store, **options}
    with pytest.raises((InferenceError, SettingsError), match=message):
        inferences(**arguments)
