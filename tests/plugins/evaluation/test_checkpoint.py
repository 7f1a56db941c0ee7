"""Collection of answers, with a checkpoint from which a run resumes."""

import resource
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.clients.protocol import InferenceClientError, Records
from app.plugins.evaluation.checkpoint import Header, collect_answers, open_checkpoint
from app.plugins.evaluation.dataset import EvaluationError, Item, fingerprint
from app.plugins.evaluation.evaluation import check_task
from tasks.task import TaskType
from tests.support.data.evaluation_samples import dataset, write_image

HEADER = Header(charioteer="1", dataset="d", source={"model": "m", "parameters": {"top_k": 3}})


class FakeAsker:
    def __init__(self, failing: Sequence[str] = (), *, interrupt_at: int = 10**9) -> None:
        self.ids: list[str] = []
        self._failing = failing
        self._interrupt_at = interrupt_at
        self._lock = threading.Lock()

    def __call__(self, item: Item, data: bytes) -> Records:
        assert data
        with self._lock:
            self.ids.append(item.id)
            if len(self.ids) >= self._interrupt_at:
                raise KeyboardInterrupt
        if item.id in self._failing:
            raise InferenceClientError(f"no {item.id}")
        return [{"label": item.id, "score": 1.0}]


def items(folder: Path, count: int) -> list[Item]:
    return [Item(id=f"{i}.png", image=write_image(folder / f"{i}.png", 8, 8, (i, 0, 0))) for i in range(count)]


def run(path: Path, all_items: Sequence[Item], asker: Any, header: Header = HEADER, **options: Any) -> Any:
    with open_checkpoint(path, header, fresh=options.pop("fresh", False)) as checkpoint:
        return collect_answers(all_items, asker, checkpoint, **options)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_every_item_is_requested_once(tmp_path: Path, concurrency: int) -> None:
    all_items, seen = items(tmp_path, 25), list[int]()
    asker = FakeAsker(["3.png"])
    collected = run(tmp_path / "p.jsonl", all_items, asker, concurrency=concurrency, progress=seen.append)
    assert sorted(asker.ids) == sorted(item.id for item in all_items)
    assert collected.failures == {"3.png": "no 3.png"}
    assert collected.records["7.png"] == [{"label": "7.png", "score": 1.0}]
    assert seen[-1] == 25


def test_second_run_requests_missing_or_changed_items(tmp_path: Path) -> None:
    all_items, path = items(tmp_path, 5), tmp_path / "out" / "p.jsonl"
    run(path, all_items, FakeAsker(["1.png"]))
    write_image(all_items[3].image, 8, 8, (200, 0, 0))
    second = FakeAsker()
    collected = run(path, all_items, second)
    assert second.ids == ["1.png", "3.png"]
    assert len(collected.records) == 5
    assert collected.failures == {}
    third = FakeAsker()
    run(path, all_items, third)
    assert third.ids == []
    run(path, all_items, third, fresh=True)
    assert len(third.ids) == 5


def check_resumed(path: Path, all_items: Sequence[Item]) -> None:
    """Check that a second run asks only for some items, and has all answers."""
    second = FakeAsker()
    assert len(run(path, all_items, second).records) == len(all_items)
    assert 0 < len(second.ids) < len(all_items)


def test_interrupted_run_is_resumed(tmp_path: Path) -> None:
    all_items, path = items(tmp_path, 12), tmp_path / "p.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(path, all_items, FakeAsker(interrupt_at=6), concurrency=2)
    check_resumed(path, all_items)


@pytest.mark.slow
def test_hanging_server_does_not_block_an_interrupt(tmp_path: Path) -> None:
    all_items, path, released = items(tmp_path, 4), tmp_path / "p.jsonl", threading.Event()

    def asker(item: Item, _: bytes) -> Records:
        if item.id != "0.png":
            released.wait(60)
        return [{"label": item.id, "score": 1.0}]

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            run(path, all_items, asker, concurrency=2, progress=interrupt)
        assert not released.is_set()
    finally:
        released.set()
    assert len(path.read_bytes().splitlines()) == 2


def test_full_disk_damages_no_line(tmp_path: Path) -> None:
    all_items, path = items(tmp_path, 12), tmp_path / "p.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            run(path, all_items, FakeAsker())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes().endswith(b"\n")
    check_resumed(path, all_items)


def test_item_of_truncated_line_is_requested_again(tmp_path: Path) -> None:
    all_items, path = items(tmp_path, 3), tmp_path / "p.jsonl"
    run(path, all_items, FakeAsker())
    path.write_bytes(path.read_bytes()[:-20])
    check_resumed(path, all_items)
    assert len(path.read_bytes().splitlines()) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "e"}, "answers about another dataset"),
        ({"source": {"model": "n", "parameters": {"top_k": 3}}}, "answers that differ in: model"),
        ({"source": {"model": "m", "parameters": {"top_k": 4}}}, "answers that differ in: parameters"),
        ({"charioteer": "2"}, None),
        ({"source": {"parameters": {"top_k": 3}, "model": "m"}}, None),
    ],
)
def test_answers_of_other_dataset_or_model_are_rejected(
    tmp_path: Path, changes: Mapping[str, Any], message: str | None
) -> None:
    all_items, path = items(tmp_path, 2), tmp_path / "p.jsonl"
    run(path, all_items, FakeAsker())
    header = msgspec.structs.replace(HEADER, **changes)
    if message is None:
        assert len(run(path, all_items, FakeAsker(), header).records) == 2
        return
    with pytest.raises(EvaluationError, match=f"{message}.*--fresh"):
        run(path, all_items, FakeAsker(), header)
    run(path, all_items, FakeAsker(), header, fresh=True)


@pytest.mark.parametrize("content", ["{}\n", "\n", '{"charioteer":1}\n', "\x00\n"])
def test_foreign_file_is_left_unchanged(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(EvaluationError, match="Expected answers of an evaluation"):
        run(path, items(tmp_path, 1), FakeAsker())
    assert path.read_text() == content


def test_invalid_line_is_rejected(tmp_path: Path) -> None:
    all_items, path = items(tmp_path, 2), tmp_path / "p.jsonl"
    path.write_bytes(msgspec.json.encode(HEADER) + b"\n{}\n")
    with pytest.raises(EvaluationError, match=r"p\.jsonl:2: Expected an answer"):
        run(path, all_items, FakeAsker())


def test_run_stops_early_when_all_requests_fail(tmp_path: Path) -> None:
    all_items = items(tmp_path, 40)
    asker = FakeAsker([item.id for item in all_items])
    with pytest.raises(EvaluationError, match=r"The first 10 images all failed; the last one: no \d+\.png"):
        run(tmp_path / "p.jsonl", all_items, asker)
    assert len(asker.ids) < 15
    with pytest.raises(EvaluationError, match=r"Not one of 2 images was answered; 0\.png: no 0\.png"):
        run(tmp_path / "q.jsonl", all_items[:2], asker)


def test_deleted_image_is_one_failure(tmp_path: Path) -> None:
    all_items = items(tmp_path, 2)
    all_items[0].image.unlink()
    collected = run(tmp_path / "p.jsonl", all_items, FakeAsker())
    assert list(collected.records) == ["1.png"]
    assert "cannot be read: No such file" in collected.failures["0.png"]


def test_answers_of_another_task_stop_the_run(tmp_path: Path) -> None:
    all_items = items(tmp_path, 30)
    detection, asker = dataset(tmp_path, *all_items, task=TaskType.OBJECT_DETECTION), FakeAsker()
    with pytest.raises(EvaluationError, match="labels of OBJECT_DETECTION; the answers are of IMAGE_CLASSIFICATION"):
        run(tmp_path / "p.jsonl", all_items, check_task(detection, asker))
    assert len(asker.ids) < 5


def test_fingerprint_covers_images_but_not_labels(tmp_path: Path) -> None:
    def fingerprint_of(*names: str, label: str = "") -> str:
        images = (Item(id=name, image=tmp_path, label=label) for name in names)
        return fingerprint(dataset(tmp_path, *images))

    assert fingerprint_of("a", "b", label="x") == fingerprint_of("a", "b")
    assert len({fingerprint_of("a", "b"), fingerprint_of("a")}) == 2
