"""Recordings put to the images that they were about."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.evaluation.dataset import Dataset, Item
from app.evaluation.extras import EvaluationError
from app.evaluation.recorded import match_recorded
from app.recording.inference import RecordedImage, RecordedInference
from metadata.entry import MetadataEntry
from tasks.task import TaskType
from tests.support.evaluations import write_picture

CAT: Sequence[Mapping[str, object]] = [{"label": "cat", "score": 0.9}]
DOG: Sequence[Mapping[str, object]] = [{"label": "dog", "score": 0.8}]


def dataset(folder: Path) -> Dataset:
    items = [
        Item(id=f"{index}.png", image=write_picture(folder / f"{index}.png", 8, 8, (index, 0, 0)), label="cat")
        for index in range(3)
    ]
    return Dataset(path=folder, format="image-folder", tasks=(TaskType.IMAGE_CLASSIFICATION,), items=tuple(items))


def recorded(records: Any, *, of: Path | None = None, name: str | None = None, **changes: Any) -> RecordedInference:
    digest = hashlib.sha256(of.read_bytes()).hexdigest() if of else "0" * 64
    values: dict[str, Any] = {
        "id": "1",
        "protocol": "kserve-v2",
        "model": "classifier",
        "version": "1",
        "started": 1,
        "duration": 1,
        "records": records,
        "image": RecordedImage(digest=digest, width=8, height=8, size=1),
        "metadata": [MetadataEntry("file_name", "str", name)] if name else [],
    }
    return RecordedInference(**{**values, **changes})


def test_by_digest_and_by_name(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    found = match_recorded(
        data, [recorded(CAT, of=data.items[0].image), recorded(DOG, name="frames/2.png"), recorded(DOG, name="9.png")]
    )
    assert found.collected.records == {"0.png": CAT, "2.png": DOG}
    assert found.collected.failures == {"1.png": "was not recorded"}
    assert (found.model, found.repeated) == ("classifier:1", 0)


def test_a_name_that_several_images_have_names_none_of_them(tmp_path: Path) -> None:
    items = [Item(id=each, image=write_picture(tmp_path / each, 8, 8)) for each in ("a/1.png", "b/1.png")]
    data = msgspec.structs.replace(dataset(tmp_path), items=tuple(items))
    found = match_recorded(data, [recorded(CAT, name="1.png"), recorded(DOG, name="b/1.png")])
    assert found.collected.records == {"b/1.png": DOG}


@pytest.mark.parametrize("later_first", [False, True])
def test_the_latest_counts(tmp_path: Path, later_first: bool) -> None:
    data = dataset(tmp_path)
    both = [recorded(CAT, name="0.png", started=5), recorded(DOG, name="0.png", started=9)]
    found = match_recorded(data, both[::-1] if later_first else both)
    assert (found.collected.records["0.png"], found.repeated) == (DOG, 1)


def test_refusals_and_explanations_are_passed_over(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    only = [recorded(None, name="0.png"), recorded(CAT, name="0.png", explanation=True)]
    with pytest.raises(EvaluationError, match="None of the 3 images was recorded"):
        match_recorded(data, only)


def test_one_model_is_measured(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    several = [recorded(CAT, name="0.png"), recorded(DOG, name="1.png", model="other")]
    with pytest.raises(EvaluationError, match="got classifier:1, other:1; choose with --name"):
        match_recorded(data, several)
    assert match_recorded(data, several, "other").collected.records == {"1.png": DOG}


def test_questions_are_told_apart(tmp_path: Path) -> None:
    image = write_picture(tmp_path / "a.png")
    items = tuple(Item(id=f"a#{q}", image=image, question=q, answers=("x",)) for q in ("What?", "How many?"))
    data = Dataset(path=tmp_path, format="vqa", tasks=(TaskType.IMAGE_TEXT_TO_TEXT,), items=items)
    answers = [{"prompt": "How many?", "answer": "two"}, {"prompt": "Who?", "answer": "me"}]
    found = match_recorded(data, [recorded(answers, of=image)])
    assert found.collected.records == {"a#How many?": [{"prompt": "How many?", "answer": "two"}]}
