"""Task types and parameters that plugins add."""

import subprocess
import sys

import pytest

from tasks.task import TaskType
from tests.support.servers.server_process import ROOT


def test_added_task_types_and_parameters_are_read_and_pickled() -> None:
    # In a process of its own: neither can be removed.
    program = """
import pickle
import msgspec
from tasks.inference.parameters import add_parameters, parameter_types
from tasks.inference.request import read_parameters
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType, all_task_types, decode_task_type
from tasks.tensor_inference import NoParameters
added = TaskType.add("RING_COUNT", "image", "objects", "pixels", "box")
assert TaskType.add("RING_COUNT", "image", "objects", "pixels", "box") is added
assert TaskType("RING_COUNT") is added and str(added) == "RING_COUNT" and added.geometry == "box"
assert msgspec.json.decode(b'"RING_COUNT"', type=TaskType, dec_hook=decode_task_type) is added
assert pickle.loads(pickle.dumps(added)) is added
assert added not in list(TaskType) and all_task_types()[-1] is added

class Tiles(msgspec.Struct, frozen=True, kw_only=True):
    tile: int = 7
class Best(msgspec.Struct, frozen=True, kw_only=True):
    top_k: int = 0
add_parameters([Tiles])
add_parameters([Tiles])
read = read_parameters(DetectionParameters, {"tile": 3, "top_k": 2, "plugin_parameters": [5]})
assert (type(read), read.plugin_parameters, read.top_k) == (DetectionParameters, (Tiles(tile=3),), 2)
assert (read.of(Tiles).tile, DetectionParameters().of(Tiles).tile) == (3, 7)
assert pickle.loads(pickle.dumps(read)) == read
assert list(parameter_types(DetectionParameters))[-1] == "tile" and "tile" not in parameter_types(NoParameters)
add_parameters([Best])
try:
    parameter_types(DetectionParameters)
except ValueError as error:
    print(error)
"""
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.stdout.splitlines() == [
        "the parameter top_k of a plugin exists already in DetectionParameters",
    ], completed.stderr


def test_task_type_whose_name_is_taken_is_rejected() -> None:
    with pytest.raises(ValueError, match="the task type TENSOR exists already"):
        TaskType.add("TENSOR", "tensor", "tensors", "numbers")
