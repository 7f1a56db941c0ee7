"""Collection of answers, several at once."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.clients.protocol import InferenceClientError, Records
from app.plugins.evaluation.collection import CollectedAnswers, collect_answers
from app.plugins.evaluation.dataset import EvaluationError, Item, fingerprint
from app.plugins.evaluation.evaluation import check_task
from tasks.task import TaskType
from tests.support.data.evaluation_samples import dataset, write_image


class FakeClient:
    def __init__(self, failing: Sequence[str] = ()) -> None:
        self.ids: list[str] = []
        self._failing = failing
        self._lock = threading.Lock()

    def __call__(self, item: Item, data: bytes) -> Records:
        assert data
        with self._lock:
            self.ids.append(item.id)
        if item.id in self._failing:
            raise InferenceClientError(f"no {item.id}")
        return [{"label": item.id, "score": 1.0}]


def items(folder: Path, count: int) -> list[Item]:
    return [Item(id=f"{i}.png", image=write_image(folder / f"{i}.png", 8, 8, (i, 0, 0))) for i in range(count)]


def collect(
    all_items: Sequence[Item], client: Any, concurrency: int = 1, progress: Callable[[int], None] = lambda _: None
) -> CollectedAnswers:
    return collect_answers(all_items, client, concurrency, progress)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_every_item_is_requested_once(tmp_path: Path, concurrency: int) -> None:
    all_items, seen = items(tmp_path, 25), list[int]()
    client = FakeClient(["3.png"])
    collected = collect(all_items, client, concurrency, seen.append)
    assert sorted(client.ids) == sorted(item.id for item in all_items)
    assert collected.failures == {"3.png": "no 3.png"}
    assert collected.records["7.png"] == [{"label": "7.png", "score": 1.0}]
    assert seen[-1] == 25


def test_hanging_server_does_not_block_an_interrupt(tmp_path: Path) -> None:
    released = threading.Event()

    def client(item: Item, _: bytes) -> Records:
        if item.id != "0.png":
            released.wait(60)
        return [{"label": item.id, "score": 1.0}]

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            collect(items(tmp_path, 4), client, 2, interrupt)
        assert not released.is_set()
    finally:
        released.set()


def test_run_stops_early_when_all_requests_fail(tmp_path: Path) -> None:
    all_items = items(tmp_path, 40)
    client = FakeClient([item.id for item in all_items])
    with pytest.raises(EvaluationError, match=r"The first 10 images all failed; the last one: no \d+\.png"):
        collect(all_items, client)
    assert len(client.ids) < 15
    with pytest.raises(EvaluationError, match=r"Not one of 2 images was answered; 0\.png: no 0\.png"):
        collect(all_items[:2], client)


def test_deleted_image_is_one_failure(tmp_path: Path) -> None:
    all_items = items(tmp_path, 2)
    all_items[0].image.unlink()
    collected = collect(all_items, FakeClient())
    assert list(collected.records) == ["1.png"]
    assert "cannot be read: No such file" in collected.failures["0.png"]


def test_answers_of_another_task_stop_the_run(tmp_path: Path) -> None:
    all_items = items(tmp_path, 30)
    detection, client = dataset(tmp_path, *all_items, task=TaskType.OBJECT_DETECTION), FakeClient()
    with pytest.raises(EvaluationError, match="labels of OBJECT_DETECTION; the answers are of IMAGE_CLASSIFICATION"):
        collect(all_items, check_task(detection, client))
    assert len(client.ids) < 5


def test_fingerprint_covers_images_but_not_labels(tmp_path: Path) -> None:
    def fingerprint_of(*names: str, label: str = "") -> str:
        images = (Item(id=name, image=tmp_path, label=label) for name in names)
        return fingerprint(dataset(tmp_path, *images))

    assert fingerprint_of("a", "b", label="x") == fingerprint_of("a", "b")
    assert len({fingerprint_of("a", "b"), fingerprint_of("a")}) == 2
