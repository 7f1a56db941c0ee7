"""Asking, writing down, and going on where it was stopped."""

import resource
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.evaluation.collecting import AskingError, collect
from app.evaluation.dataset import Dataset, Item, fingerprint
from app.evaluation.evaluation import checked
from app.evaluation.extras import EvaluationError
from app.evaluation.journal import Header, Records, journal
from tasks.task import TaskType
from tests.support.evaluations import write_picture

HEADER = Header(charioteer="1", dataset="d", source={"model": "m", "parameters": {"top_k": 3}})


class Asked:
    """Answers with the item's name, and remembers who asked."""

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
            raise AskingError(f"no {item.id}")
        return [{"label": item.id, "score": 1.0}]


def items(folder: Path, count: int) -> list[Item]:
    return [Item(id=f"{i}.png", image=write_picture(folder / f"{i}.png", 8, 8, (i, 0, 0))) for i in range(count)]


def run(path: Path, some: Sequence[Item], ask: Any, header: Header = HEADER, **options: Any) -> Any:
    with journal(path, header, fresh=options.pop("fresh", False)) as book:
        return collect(some, ask, book, **options)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_every_item_is_asked_once(tmp_path: Path, concurrency: int) -> None:
    some, seen = items(tmp_path, 25), list[int]()
    ask = Asked(["3.png"])
    done = run(tmp_path / "p.jsonl", some, ask, concurrency=concurrency, progress=seen.append)
    assert sorted(ask.ids) == sorted(each.id for each in some)
    assert done.failures == {"3.png": "no 3.png"}
    assert done.records["7.png"] == [{"label": "7.png", "score": 1.0}]
    assert seen[-1] == 25


def test_a_second_run_asks_what_is_missing_or_changed(tmp_path: Path) -> None:
    some, path = items(tmp_path, 5), tmp_path / "out" / "p.jsonl"
    run(path, some, Asked(["1.png"]))
    write_picture(some[3].image, 8, 8, (200, 0, 0))
    again = Asked()
    done = run(path, some, again)
    assert again.ids == ["1.png", "3.png"]
    assert len(done.records) == 5
    assert done.failures == {}
    third = Asked()
    run(path, some, third)
    assert third.ids == []
    run(path, some, third, fresh=True)
    assert len(third.ids) == 5


def test_an_interrupted_run_leaves_a_file_to_go_on_from(tmp_path: Path) -> None:
    some, path = items(tmp_path, 12), tmp_path / "p.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(path, some, Asked(interrupt_at=6), concurrency=2)
    again = Asked()
    assert len(run(path, some, again).records) == 12
    assert 0 < len(again.ids) < 12


@pytest.mark.slow
def test_a_server_that_does_not_answer_keeps_nobody_from_ending(tmp_path: Path) -> None:
    some, path, answered = items(tmp_path, 4), tmp_path / "p.jsonl", threading.Event()

    def ask(item: Item, _: bytes) -> Records:
        if item.id != "0.png":
            answered.wait(60)
        return [{"label": item.id, "score": 1.0}]

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            run(path, some, ask, concurrency=2, progress=interrupt)
        assert not answered.is_set()
    finally:
        answered.set()
    assert len(path.read_bytes().splitlines()) == 2


def test_what_does_not_fit_on_a_disk_spoils_no_line(tmp_path: Path) -> None:
    some, path = items(tmp_path, 12), tmp_path / "p.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            run(path, some, Asked())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes().endswith(b"\n")
    again = Asked()
    assert len(run(path, some, again).records) == 12
    assert 0 < len(again.ids) < 12


def test_a_line_that_broke_off_is_asked_again(tmp_path: Path) -> None:
    some, path = items(tmp_path, 3), tmp_path / "p.jsonl"
    run(path, some, Asked())
    path.write_bytes(path.read_bytes()[:-20])
    again = Asked()
    done = run(path, some, again)
    assert again.ids == ["2.png"]
    assert len(done.records) == 3
    assert len(path.read_bytes().splitlines()) == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": "e"}, "answers about another dataset"),
        ({"source": {"model": "n", "parameters": {"top_k": 3}}}, "answers with another model"),
        ({"source": {"model": "m", "parameters": {"top_k": 4}}}, "answers with another parameters"),
        ({"charioteer": "2"}, None),
        ({"source": {"parameters": {"top_k": 3}, "model": "m"}}, None),
    ],
)
def test_answers_of_something_else_are_not_mixed_in(
    tmp_path: Path, changes: Mapping[str, Any], said: str | None
) -> None:
    some, path = items(tmp_path, 2), tmp_path / "p.jsonl"
    run(path, some, Asked())
    header = msgspec.structs.replace(HEADER, **changes)
    if said is None:
        run(path, some, Asked(), header)
        return
    with pytest.raises(EvaluationError, match=f"{said}.*--fresh"):
        run(path, some, Asked(), header)
    run(path, some, Asked(), header, fresh=True)


@pytest.mark.parametrize("content", ["hello\n", "{}\n", "\n", '{"charioteer":1}\n', "\x00\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(EvaluationError, match="Expected answers of an evaluation"):
        run(path, items(tmp_path, 1), Asked())
    assert path.read_text() == content


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    some, path = items(tmp_path, 2), tmp_path / "p.jsonl"
    run(path, some, Asked())
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{}", lines[2], ""]))
    with pytest.raises(EvaluationError, match=r"p\.jsonl:2: Expected an answer"):
        run(path, some, Asked())


def test_when_nothing_is_answered_it_ends_early(tmp_path: Path) -> None:
    some = items(tmp_path, 40)
    ask = Asked([each.id for each in some])
    with pytest.raises(EvaluationError, match=r"The first 10 images all failed; the last one: no \d+\.png"):
        run(tmp_path / "p.jsonl", some, ask)
    assert len(ask.ids) < 15
    with pytest.raises(EvaluationError, match=r"Not one of 2 images was answered; 0\.png: no 0\.png"):
        run(tmp_path / "q.jsonl", some[:2], ask)


def test_a_picture_that_went_away_is_one_failure(tmp_path: Path) -> None:
    some = items(tmp_path, 2)
    some[0].image.unlink()
    done = run(tmp_path / "p.jsonl", some, Asked())
    assert list(done.records) == ["1.png"]
    assert "cannot be read: No such file" in done.failures["0.png"]


def test_answers_of_another_task_end_it_at_once(tmp_path: Path) -> None:
    some = items(tmp_path, 30)
    dataset = Dataset(path=tmp_path, format="coco", tasks=(TaskType.OBJECT_DETECTION,), items=tuple(some))
    ask = Asked()
    with pytest.raises(EvaluationError, match="labels of OBJECT_DETECTION; the answers are of IMAGE_CLASSIFICATION"):
        run(tmp_path / "p.jsonl", some, checked(dataset, ask))
    assert len(ask.ids) < 5


def test_the_fingerprint_is_of_images_and_questions(tmp_path: Path) -> None:
    some = items(tmp_path, 2)
    dataset = Dataset(path=tmp_path, format="coco", tasks=(TaskType.OBJECT_DETECTION,), items=tuple(some))
    relabelled = [msgspec.structs.replace(each, label="x") for each in some]
    asked = [msgspec.structs.replace(each, question="What?") for each in some]

    def of(changed: Sequence[Item]) -> str:
        return fingerprint(msgspec.structs.replace(dataset, items=tuple(changed)))

    assert of(relabelled) == of(some)
    assert len({of(some), of(asked), of(some[:1])}) == 3
