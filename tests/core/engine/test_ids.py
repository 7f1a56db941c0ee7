"""Unique ids."""

import multiprocessing
import uuid
from multiprocessing.queues import Queue

from app.core.engine.request_context import RequestContext, request_id


def event_id() -> str:
    context = RequestContext(protocol="test", request_id="abc")
    context.finish()
    return context.id


def test_ids_are_unique_and_well_formed() -> None:
    events, requests = {event_id() for _ in range(2000)}, {request_id() for _ in range(2000)}
    assert len(events) == len(requests) == 2000
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in events)
    assert all(uuid.UUID(name).version == 4 for name in requests)


def test_event_ids_are_ordered_by_time() -> None:
    times = [event_id()[:12] for _ in range(100)]
    assert times == sorted(times)


def _put_request_id(queue: "Queue[str]") -> None:
    queue.put(request_id())


def test_forked_processes_make_different_ids() -> None:
    context = multiprocessing.get_context("fork")
    queue: Queue[str] = context.Queue()
    children = [context.Process(target=_put_request_id, args=(queue,)) for _ in range(3)]
    for child in children:
        child.start()
    names = {queue.get(timeout=60) for _ in children}
    for child in children:
        child.join(60)
    assert len({*names, request_id()}) == 4
