"""Which answers are right."""

from pathlib import Path

import pytest

from soak.references import References
from soak.shelf import BREAKABLE, MOVABLE, REPLACED, Shelf
from soak.traffic import Material, judged, refused
from soak.wire import Answer


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "models", isolating=True)


@pytest.fixture
def material(shelf: Shelf) -> Material:
    return Material(References(shelf.folder, ["classifier"], ["vlm"]), shelf)


def test_records_are_those_of_the_picture(material: Material) -> None:
    found = material.references.records["classifier", "shape.jpg"]
    assert found[0]["label"] == "blue star"
    assert material.is_found("classifier", "shape.jpg", found)
    assert not material.is_found("classifier", "scene.jpg", found)
    assert set(material.references.answers.values()) == {"star", "blue"}


def test_a_model_that_is_replaced_may_answer_as_either_until_the_new_one_has(shelf: Shelf, material: Material) -> None:
    before = material.is_answer(REPLACED, 10.0)
    assert [before(7.0), before(8.0)] == [True, False]
    shelf.replace("three")
    assert [before(7.0), before(8.0), before(9.0)] == [True, True, False]
    shelf.settled("three")
    after = material.is_answer(REPLACED, 10.0)
    assert [before(7.0), after(7.0), after(8.0)] == [True, False, True]
    other = material.is_answer(BREAKABLE, 10.0)
    assert [other(7.0), other(8.0)] == [True, False]


def test_files_are_broken_and_mended_and_folders_go_and_come(shelf: Shelf) -> None:
    file, folder = shelf.folder / BREAKABLE / "model.onnx", shelf.folder / MOVABLE
    whole = file.read_bytes()
    shelf.break_file(b"rubbish")
    assert file.read_bytes() == b"rubbish"
    shelf.mend()
    assert file.read_bytes() == whole
    assert sorted(each.name for each in file.parent.iterdir()) == ["model.onnx"]
    shelf.take_away()
    assert not folder.exists()
    shelf.bring_back()
    assert (folder / "model.onnx").read_bytes() == whole


def test_an_answer_that_cannot_be_read_is_wrong() -> None:
    def fault() -> str:
        raise KeyError("outputs")

    assert "cannot be read" in judged(Answer(200, b"{}"), fault).note
    assert judged(Answer(200, b"{}"), lambda: "").note == ""
    assert refused(Answer(200)) is None
    refusal = refused(Answer(429, b"try again later"))
    assert refusal is not None
    assert (refusal.status, refusal.note) == (429, "try again later")
