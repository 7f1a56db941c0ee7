"""The queue of shadow jobs without a server, and rows of shadow answers in stores of both kinds."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from app.core.engine.models.registry import ModelState, Registration
from app.core.settings.model import ModelSource
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.shadow.queue import MAX_WAITING, ShadowedSample, ShadowJob, ShadowQueue, with_pixels
from app.plugins.shadow.rows import ShadowRow, ShadowWriter, read_rows
from tasks.image_classification import Classification
from tasks.inference.request import InferenceRequest
from tasks.inference.response import SampleResult
from tasks.inference.tensor import BytesTensor, Tensor
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tasks.vision.request import ImageItem

_SECONDS = 10


def job(name: str = "a", pixels: int = 1) -> ShadowJob:
    model = Registration(source=ModelSource(name="m", version="1", folder=Path("m")), state=ModelState.READY)
    prediction = Classification(labels=["cat"], scores=np.ones(1, np.float32))
    request = InferenceRequest(id=name, model_name="m", inputs=())
    samples = [ShadowedSample("a-0-0", prediction, pixels, 1)]
    return ShadowJob(registration=model, request=request, decoded=request, samples=samples, model_ns=1)


@contextmanager
def running(run: Callable[[ShadowJob], None], may_run: Callable[[], bool] = lambda: True) -> Generator[ShadowQueue]:
    queue = ShadowQueue(run, may_run, lambda: None, lambda: None)
    try:
        yield queue
    finally:
        queue.close(_SECONDS)


def test_jobs_start_only_while_a_worker_is_idle() -> None:
    idle, asked, ran = threading.Event(), threading.Event(), threading.Event()
    started_while_busy: list[bool] = []

    def may_run() -> bool:
        asked.set()
        return idle.is_set()

    def run(_: ShadowJob) -> None:
        started_while_busy.append(not idle.is_set())
        ran.set()

    with running(run, may_run) as queue:
        assert queue.submit(job())
        assert asked.wait(_SECONDS)
        idle.set()
        assert ran.wait(_SECONDS)
    assert started_while_busy == [False]


def test_full_queue_rejects_jobs_and_keeps_their_order() -> None:
    release, started, done, names = threading.Event(), threading.Event(), threading.Event(), list[str]()

    def run(one: ShadowJob) -> None:
        started.set()
        assert release.wait(_SECONDS)
        names.append(one.request.id)
        if len(names) == MAX_WAITING + 1:
            done.set()

    with running(run) as queue:
        assert queue.submit(job("first"))
        assert started.wait(_SECONDS)
        assert [queue.submit(job(str(number))) for number in range(MAX_WAITING + 1)] == [True] * MAX_WAITING + [False]
        release.set()
        assert done.wait(_SECONDS)
    assert names == ["first", *map(str, range(MAX_WAITING))]


def test_large_images_fill_the_queue() -> None:
    with running(lambda _: None, lambda: False) as queue:
        assert [queue.submit(job(pixels=10_000_000)) for _ in range(3)] == [True, True, False]


def test_shadow_version_gets_the_decoded_pixels_of_inputs_with_one_image() -> None:
    pixels = np.zeros((1, 2, 3), np.uint8)
    full, reduced = (ImageItem(Image(pixels, full_size=size), SelectionParameters()) for size in (None, (2, 4)))
    nothing = Classification(labels=[], scores=np.zeros(0, np.float32))
    items = ((0, full), (1, full), (1, full), (2, reduced))
    samples = [SampleResult(input=number, index=0, item=item, prediction=nothing) for number, item in items]
    inputs = tuple(BytesTensor(name=name, shape=(1,), elements=(), parameters={"top_k": 1}) for name in "abc")
    first, *rest = with_pixels(InferenceRequest(id="a", model_name="m", inputs=inputs), samples).inputs
    assert isinstance(first, Tensor)
    assert (first.name, first.shape, first.parameters) == ("a", (1, 1, 2, 3), {"top_k": 1})
    assert rest == [*inputs[1:]]


def test_failing_job_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Event()

    def run(one: ShadowJob) -> None:
        assert one.request.id == "good"
        ran.set()

    with running(run) as queue:
        queue.submit(job("broken"))
        queue.submit(job("good"))
        assert ran.wait(_SECONDS)
    assert "shadow job failed" in caplog.text


def test_closed_queue_drops_jobs_that_wait() -> None:
    ran: list[ShadowJob] = []
    with running(ran.append, lambda: False) as queue:
        assert queue.submit(job())
    assert not queue.submit(job())
    assert not ran


def _row(number: int, seconds: float = 0.0, version: str = "2") -> ShadowRow:
    recorded = int((time.time() - seconds) * 1e6) + number
    return ShadowRow(id=f"{number}-0-0", version=version, model="m", champion="1", time=recorded, agreed=True)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_rows_are_read_newest_first_and_expire(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = str(tmp_path / "a.db") if kind == "sqlite" else request.getfixturevalue("postgres").empty_database()
    store = store_at(parse_dsn(url))
    store.open()
    reader, writer = RecordingReader(parse_dsn(url)), ShadowWriter(store, keep=60)
    assert read_rows(reader) == []
    for row in (_row(1), _row(2, seconds=120), _row(3), _row(4, version="3")):
        writer.add(row)
    writer.close()
    assert [row.id for row in read_rows(reader)] == ["4-0-0", "3-0-0", "1-0-0"]
    assert [row.id for row in read_rows(reader, "m", "2")] == ["3-0-0", "1-0-0"]
    assert [row.id for row in read_rows(reader, limit=1)] == ["4-0-0"]
    assert read_rows(reader, "other") == []


def test_rows_that_cannot_be_written_are_dropped_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "absent"
    writer = ShadowWriter(store_at(parse_dsn(str(folder / "store.db"))), keep=None)
    writer.add(_row(1))
    writer.flush()
    assert "1 shadow answers could not be recorded" in caplog.text
    folder.mkdir()
    writer.add(_row(2))
    writer.close()
    assert [row.id for row in read_rows(RecordingReader(parse_dsn(str(folder / "store.db"))))] == ["2-0-0"]
