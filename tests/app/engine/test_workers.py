"""The threads that answer requests, and those of them that wait for something else."""

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

import pytest

from app.engine.workers import Workers, waiting_elsewhere

SECONDS = 30


class Gate:
    """Jobs that say that they have begun, and go on when they are let."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = threading.Semaphore(0)

    def pass_through(self) -> str:
        self.begun.release()
        assert self.open.wait(SECONDS)
        return threading.current_thread().name

    def wait_elsewhere(self) -> str:
        with waiting_elsewhere():
            return self.pass_through()

    def await_begun(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=SECONDS)


def test_results_and_errors_come_back() -> None:
    workers = Workers(2, "w")
    assert workers.submit(divmod, 7, 2).result(SECONDS) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 1, 0).result(SECONDS)
    with pytest.raises(SystemExit):
        workers.submit(lambda: exit_now()).result(SECONDS)
    assert workers.submit(len, "still there").result(SECONDS) == 11
    workers.close()


def exit_now() -> None:
    raise SystemExit(1)


def test_no_more_are_at_work_than_there_are_workers() -> None:
    workers, gate = Workers(2, "w"), Gate()
    jobs = [workers.submit(gate.pass_through) for _ in range(5)]
    gate.await_begun(2)
    assert not gate.begun.acquire(timeout=0.05)
    gate.open.set()
    assert {each.result(SECONDS) for each in jobs} <= {"w-1", "w-2"}
    workers.close()


def test_whoever_waits_elsewhere_makes_room_for_another() -> None:
    workers, hung = Workers(2, "w"), Gate()
    waiting = [workers.submit(hung.wait_elsewhere) for _ in range(10)]
    hung.await_begun(10)
    assert workers.submit(len, "ab").result(SECONDS) == 2
    hung.open.set()
    for each in waiting:
        each.result(SECONDS)
    workers.close()


def test_afterwards_no_more_are_at_work_than_before() -> None:
    workers, hung, gate = Workers(2, "w"), Gate(), Gate()
    waiting = [workers.submit(hung.wait_elsewhere) for _ in range(6)]
    hung.await_begun(6)
    hung.open.set()
    for each in waiting:
        each.result(SECONDS)
    jobs = [workers.submit(gate.pass_through) for _ in range(20)]
    gate.await_begun(2)
    assert not gate.begun.acquire(timeout=0.05)
    gate.open.set()
    for each in jobs:
        each.result(SECONDS)
    workers.close()


def test_the_spare_threads_take_their_places_again() -> None:
    workers = Workers(1, "spare")
    for _ in range(20):
        gate = Gate()
        waiting = workers.submit(gate.wait_elsewhere)
        gate.await_begun(1)
        assert workers.submit(len, "abc").result(SECONDS) == 3
        gate.open.set()
        waiting.result(SECONDS)
    made = [each for each in threading.enumerate() if each.name.startswith("spare-")]
    assert len(made) <= 3
    workers.close()


def test_waiting_elsewhere_is_nothing_to_other_threads() -> None:
    with waiting_elsewhere():
        pass


def test_jobs_that_wait_are_dropped_at_the_end_and_those_in_hand_finished() -> None:
    workers, gate = Workers(1, "w"), Gate()
    in_hand = workers.submit(gate.pass_through)
    gate.await_begun(1)
    dropped = workers.submit(len, "")
    workers.close()
    workers.close()
    with pytest.raises(CancelledError):
        dropped.result(SECONDS)
    with pytest.raises(RuntimeError, match="are closed"):
        workers.submit(len, "")
    gate.open.set()
    assert in_hand.result(SECONDS) == "w-1"


def test_a_job_may_step_aside_while_the_workers_are_closed() -> None:
    workers, gate = Workers(1, "w"), Gate()
    waiting = workers.submit(gate.wait_elsewhere)
    gate.await_begun(1)
    workers.close()
    gate.open.set()
    assert waiting.result(SECONDS)


def test_a_job_that_was_cancelled_is_not_run() -> None:
    workers, gate, ran = Workers(1, "w"), Gate(), threading.Event()
    workers.submit(gate.pass_through)
    gate.await_begun(1)
    job: Future[None] = workers.submit(ran.set)
    assert job.cancel()
    gate.open.set()
    workers.submit(len, "").result(SECONDS)
    assert not ran.is_set()
    workers.close()


def test_workers_that_nobody_uses_any_more_go_home() -> None:
    ended = threading.Event()

    class Held:
        def __call__(self) -> Callable[[], object]:
            return self

    workers, held = Workers(1, "w"), Held()
    threads = {each for each in threading.enumerate() if each.name.startswith("w-")}
    workers.submit(held).result(SECONDS)
    (thread,) = {each for each in threading.enumerate() if each.name.startswith("w-")} - threads
    known = weakref.ref(held, lambda _: ended.set())
    del held
    del workers
    gc.collect()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert known() is None
    assert ended.is_set()


def test_a_model_does_not_wait_for_the_end_of_anothers_long_jobs() -> None:
    workers, slow = Workers(2, "w"), Gate()
    jobs = [workers.submit_for("slow", slow.pass_through) for _ in range(5)]
    slow.await_begun(2)
    for _ in range(20):
        assert workers.submit_for("fast", lambda: "at once").result(SECONDS) == "at once"
    assert not slow.begun.acquire(timeout=0.05)
    slow.open.set()
    for each in jobs:
        each.result(SECONDS)
    workers.close()


def test_threads_beyond_the_workers_are_as_many_again_at_most() -> None:
    workers, gate = Workers(2, "w"), Gate()
    jobs = [workers.submit_for(f"model-{index}", gate.pass_through) for index in range(10)]
    gate.await_begun(4)
    assert not gate.begun.acquire(timeout=0.05)
    gate.open.set()
    assert {each.result(SECONDS) for each in jobs} <= {"w-1", "w-2", "w-3", "w-4"}
    workers.close()


def test_what_a_job_waits_is_judged_by_earlier_ones() -> None:
    workers, gate = Workers(1, "w"), Gate()
    assert workers.expected_wait("a") == 0
    workers.submit_for("a", lambda: gate.open.wait(0.02)).result(SECONDS)
    running = workers.submit_for("a", gate.pass_through)
    gate.await_begun(1)
    waiting = [workers.submit_for("a", lambda: None) for _ in range(3)]
    assert workers.expected_wait("a") >= 0.06
    assert workers.expected_wait("other") == 0
    gate.open.set()
    for each in (running, *waiting):
        each.result(SECONDS)
    workers.close()


def test_expected_wait_counts_the_rest_of_the_running_job() -> None:
    workers, gate = Workers(1, "w"), Gate()
    workers.submit_for("m", lambda: threading.Event().wait(0.05)).result(SECONDS)
    running = workers.submit_for("m", gate.pass_through)
    gate.await_begun(1)
    # Also a job that takes longer than earlier ones is expected to take a while yet.
    assert workers.expected_wait("m") >= 0.05 / 4
    gate.open.set()
    running.result(SECONDS)
    workers.close()


def test_a_job_that_is_dropped_is_forgotten_while_the_workers_are_at_others() -> None:
    workers, gate = Workers(1, "w"), Gate()
    workers.submit_for("m", lambda: threading.Event().wait(0.05)).result(SECONDS)
    in_hand = workers.submit_for("m", gate.pass_through)
    gate.await_begun(1)
    held = Gate()
    known = weakref.ref(held)
    waiting = [workers.submit_for("m", held.pass_through) for _ in range(100)]
    del held
    assert workers.expected_wait("m") > 4
    assert all(each.cancel() for each in waiting)
    del waiting
    gc.collect()
    # Only the rest of the running job is left.
    assert workers.expected_wait("m") < 4
    assert known() is None
    last = workers.submit_for("m", lambda: "still there")
    gate.open.set()
    assert (in_hand.result(SECONDS), last.result(SECONDS)) == ("w-1", "still there")
    workers.close()


def test_a_model_waits_for_its_own_backlog_and_its_share_of_anothers() -> None:
    workers, gate = Workers(1, "w"), Gate()
    workers.submit_for("slow", lambda: threading.Event().wait(0.1)).result(SECONDS)
    workers.submit_for("fast", lambda: None).result(SECONDS)
    jobs = [workers.submit_for(model, gate.pass_through) for model in ("slow", "fast")]
    gate.await_begun(2)
    jobs += [workers.submit_for("slow", gate.pass_through) for _ in range(50)]
    assert workers.expected_wait("slow") > 4
    assert workers.expected_wait("fast") < 1
    gate.open.set()
    for each in jobs:
        each.result(SECONDS)
    workers.close()


def test_a_turn_is_time_at_work() -> None:
    workers, gate = Workers(1, "w"), Gate()

    def wait() -> None:
        with waiting_elsewhere():
            threading.Event().wait(0.2)

    workers.submit_for("m", wait).result(SECONDS)
    jobs = [workers.submit_for("m", gate.pass_through) for _ in range(5)]
    gate.await_begun(1)
    assert workers.expected_wait("m") < 0.4
    gate.open.set()
    for each in jobs:
        each.result(SECONDS)
    workers.close()


def test_whoever_hears_that_a_job_is_dropped_at_the_end_may_ask_about_the_others() -> None:
    workers, gate = Workers(1, "w"), Gate()
    in_hand = workers.submit_for("m", gate.pass_through)
    gate.await_begun(1)
    waits: list[float] = []
    dropped = workers.submit_for("m", lambda: None)
    dropped.add_done_callback(lambda _: waits.append(workers.expected_wait("m")))
    closing = threading.Thread(target=workers.close, daemon=True)
    closing.start()
    closing.join(SECONDS)
    assert waits == [0]
    gate.open.set()
    in_hand.result(SECONDS)


def test_a_system_without_threads_to_give_costs_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers, gate = Workers(2, "w"), Gate()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            workers.submit(len, "")
    first = workers.submit(gate.wait_elsewhere)
    gate.await_begun(1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        others = [workers.submit(len, "ab") for _ in range(3)]
    gate.open.set()
    assert first.result(SECONDS)
    assert [each.result(SECONDS) for each in others] == [2, 2, 2]
    both = threading.Barrier(2, timeout=SECONDS)
    for each in [workers.submit(both.wait) for _ in range(2)]:
        each.result(SECONDS)
    workers.close()
