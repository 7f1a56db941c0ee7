"""Matching of recordings to the images of a dataset."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item
from app.plugins.evaluation.recorded_answers import match_recorded, read_recorded
from app.plugins.recording.inference import RecordedImage, RecordedInference
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.sqlite_store import SqliteStore
from metadata.request import MetadataEntry
from tasks.task import TaskType
from tests.support.data.evaluation_samples import dataset, write_image
from tests.support.data.recorded_rows import recorded_inference

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
    assert read_recorded(three_images(tmp_path), str(tmp_path / "recorded.db"), None)[1].records == {"1.png": CAT}
    (tmp_path / "chosen.jsonl").write_bytes(msgspec.json.encode(trial))
    assert read_recorded(three_images(tmp_path), str(tmp_path / "chosen.jsonl"), None)[1].records == {"1.png": DOG}


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


def test_recordings_of_several_models_need_a_choice(tmp_path: Path) -> None:
    data = three_images(tmp_path)
    recordings = [recorded(CAT, name="0.png"), recorded(DOG, name="1.png", model="other")]
    with pytest.raises(EvaluationError, match="got classifier:1, other:1; choose with --name"):
        match_recorded(data, recordings)
    assert match_recorded(data, recordings, "other")[0].records == {"1.png": DOG}


def test_recordings_of_several_versions_name_the_way_to_one(tmp_path: Path) -> None:
    recordings = [recorded(CAT, name="0.png"), recorded(DOG, name="1.png", version="2")]
    with pytest.raises(EvaluationError, match=r"got classifier:1, classifier:2; export one .* --model-version"):
        match_recorded(three_images(tmp_path), recordings, "classifier")


def test_recordings_match_by_question(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.png")
    items = tuple(Item(id=f"a#{q}", image=image, question=q, answers=("x",)) for q in ("What?", "How many?"))
    data = dataset(tmp_path, *items, task=TaskType.IMAGE_TEXT_TO_TEXT)
    answers = [{"prompt": "How many?", "answer": "two"}, {"prompt": "Who?", "answer": "me"}]
    collected, _, _ = match_recorded(data, [recorded(answers, image=image)])
    assert collected.records == {"a#How many?": [{"prompt": "How many?", "answer": "two"}]}
