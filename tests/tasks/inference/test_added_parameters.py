"""Parameters that plugins add to those of every task."""

import subprocess
import sys

from tests.support.servers.server_process import ROOT


def test_added_parameters_are_read_pickled_and_may_not_replace_own_ones() -> None:
    # In a process of its own: parameters cannot be removed.
    program = """
import pickle
from msgspec import Struct
from tasks.inference.parameters import add_parameters, extended
from tasks.inference.request import read_parameters
from tasks.object_detection import DetectionParameters
class Tiles(Struct, frozen=True, kw_only=True):
    tile: int = 7
assert DetectionParameters().of(Tiles).tile == 7
add_parameters([("tile", int, 7)])
add_parameters([("tile", int, 7)])
read = read_parameters(DetectionParameters, {"tile": 3, "top_k": 2})
assert isinstance(read, DetectionParameters) and (read.of(Tiles).tile, read.top_k) == (3, 2)
assert pickle.loads(pickle.dumps(read)) == read
assert extended(type(read)) is type(read) is extended(DetectionParameters)
for fields in ([("tile", str, "")], [("top_k", int, 0)]):
    try:
        add_parameters(fields)
        extended(DetectionParameters)
    except ValueError as error:
        print(error)
"""
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.stdout.splitlines() == [
        "the parameter tile exists already",
        "the parameter top_k of a plugin exists already in DetectionParameters",
    ], completed.stderr
