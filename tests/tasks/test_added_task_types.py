"""Task types that plugins add."""

import subprocess
import sys

import pytest

from tasks.task import TaskType
from tests.support.servers.server_process import ROOT


def test_added_task_type_is_decoded_and_pickled() -> None:
    # In a process of its own: a task type cannot be removed.
    program = """
import msgspec, pickle
from tasks.task import TaskType, all_task_types
added = TaskType.add("RING_COUNT", "image", "objects", "pixels", "box")
assert TaskType.add("RING_COUNT", "image", "objects", "pixels", "box") is added
assert msgspec.json.decode(b'"RING_COUNT"', type=TaskType) is added
assert msgspec.json.encode(added) == b'"RING_COUNT"'
assert pickle.loads(pickle.dumps(added)) is added
assert added not in list(TaskType) and all_task_types()[-1] is added
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=60)


def test_task_type_whose_name_is_taken_is_rejected() -> None:
    with pytest.raises(ValueError, match="the task type TENSOR exists already"):
        TaskType.add("TENSOR", "tensor", "tensors", "numbers")
