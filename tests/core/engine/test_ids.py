"""Unique ids."""

import subprocess
import sys
import uuid

from app.core.engine.request_context import RequestContext, request_id
from tests.support.servers.server_process import ROOT


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


def test_forked_processes_make_different_ids() -> None:
    # In an interpreter of its own: a thread of gRPC can abort a forked child.
    code = """
import os
from app.core.engine.request_context import request_id
children = [os.fork() or os._exit(os.write(1, f"{request_id()}\\n".encode()) != 37) for _ in range(3)]
statuses = [os.waitpid(child, 0)[1] for child in children]
print(request_id(), *statuses)
"""
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    *names, own = printed.splitlines()
    name, *statuses = own.split()
    assert statuses == ["0", "0", "0"]
    assert len({*names, name}) == 4
