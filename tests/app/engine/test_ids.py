"""Names that nobody else has."""

import multiprocessing
import uuid
from multiprocessing.queues import Queue

from app.engine.ids import event_id, request_id


def test_names_differ_and_look_as_they_should() -> None:
    events, requests = {event_id() for _ in range(2000)}, {request_id() for _ in range(2000)}
    assert len(events) == len(requests) == 2000
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in events)
    assert all(uuid.UUID(each).version == 4 for each in requests)


def test_events_are_in_the_order_of_their_times() -> None:
    times = [event_id()[:12] for _ in range(100)]
    assert times == sorted(times)


def _tell(queue: "Queue[str]") -> None:
    queue.put(request_id())


def test_forked_processes_make_names_of_their_own() -> None:
    context = multiprocessing.get_context("fork")
    queue: Queue[str] = context.Queue()
    children = [context.Process(target=_tell, args=(queue,)) for _ in range(3)]
    for each in children:
        each.start()
    names = {queue.get(timeout=60) for _ in children}
    for each in children:
        each.join(60)
    assert len({*names, request_id()}) == 4
