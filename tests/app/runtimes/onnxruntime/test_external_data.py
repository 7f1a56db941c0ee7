"""Graphs that name files: those beside them are read, nothing else is."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from app.runtimes.folder import confined, confined_to
from app.runtimes.onnxruntime.external_data import check_external_data
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelError, ModelSource
from tests.app.runtimes.onnxruntime.graphs import write
from tests.support.server_process import ROOT

NUMBERS = np.arange(4, dtype=np.float32)
ELSEWHERE = [
    "/etc/passwd",
    "../outside.bin",
    "sub/../../outside.bin",
    "./../outside.bin",
    "..\\outside.bin",
    "*/_ORT_MEM_ADDR_/*",
    ".hidden/data.bin",
    "__pycache__/data.bin",
    "data.bin\0/etc/passwd",
    "data\n.bin",
    ".",
    "",
]


def outside(location: str, **numbers: int) -> Any:
    """A tensor of four numbers that lie in another file."""
    tensor: Any = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **numbers}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model(graph: Any, **more: Any) -> Any:
    made: Any = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], **more)
    made.ir_version = 8
    return made


def plain_graph(*nodes: Any, **more: Any) -> Any:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    return helper.make_graph(list(nodes), "g", [], [value], **more)


def as_initializer(tensor: Any) -> Any:
    return model(plain_graph(helper.make_node("Identity", ["w"], ["y"]), initializer=[tensor]))


def as_sparse_values(tensor: Any) -> Any:
    sparse = onnx.SparseTensorProto(values=tensor, dims=[4])
    return model(plain_graph(helper.make_node("Identity", ["w"], ["y"]), sparse_initializer=[sparse]))


def as_attribute(tensor: Any) -> Any:
    return model(plain_graph(helper.make_node("Constant", [], ["y"], value=tensor)))


def as_attribute_list(tensor: Any) -> Any:
    node: Any = helper.make_node("Odd", [], ["y"])
    node.attribute.append(helper.make_attribute("all", [tensor]))
    return model(plain_graph(node))


def as_subgraph(tensor: Any) -> Any:
    inner = as_attribute(tensor).graph
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=plain_graph())
    return model(plain_graph(node))


def as_subgraph_of_a_subgraph(tensor: Any) -> Any:
    return model(plain_graph(helper.make_node("If", ["c"], ["y"], then_branch=as_subgraph(tensor).graph)))


def as_function(tensor: Any) -> Any:
    nodes = [helper.make_node("Constant", [], ["y"], value=tensor)]
    function = helper.make_function("own", "F", [], ["y"], nodes, [helper.make_opsetid("", 17)])
    return model(plain_graph(helper.make_node("F", [], ["y"], domain="own")), functions=[function])


def as_training(tensor: Any) -> Any:
    made = model(plain_graph())
    made.training_info.add().initialization.CopyFrom(as_attribute(tensor).graph)
    return made


PLACES: list[Callable[[Any], Any]] = [
    as_initializer,
    as_sparse_values,
    as_attribute,
    as_attribute_list,
    as_subgraph,
    as_subgraph_of_a_subgraph,
    as_function,
    as_training,
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "m"
    (made / "sub").mkdir(parents=True)
    (made / ".hidden").mkdir()
    (made / "__pycache__").mkdir()
    for each in ("data.bin", "sub/data.bin", "../outside.bin", ".hidden/data.bin", "__pycache__/data.bin"):
        (made / each).write_bytes(NUMBERS.tobytes())
    return made


def check(folder: Path, made: Any) -> None:
    file = folder / "model.onnx"
    file.write_bytes(made.SerializeToString())
    check_external_data(file, lambda path: confined_to((folder.resolve(),), path))


@pytest.mark.parametrize("place", PLACES)
def test_a_file_elsewhere_is_found_wherever_a_tensor_may_stand(folder: Path, place: Callable[[Any], Any]) -> None:
    check(folder, place(outside("data.bin")))
    check(folder, place(outside("./sub/data.bin", offset=4, length=12)))
    with pytest.raises(ModelError, match=r"external data in '\.\./outside\.bin'"):
        check(folder, place(outside("../outside.bin")))


@pytest.mark.parametrize("location", ELSEWHERE)
def test_locations_that_are_refused(folder: Path, location: str) -> None:
    (folder / "*" / "_ORT_MEM_ADDR_").mkdir(parents=True)
    (folder / "*" / "_ORT_MEM_ADDR_" / "*").write_bytes(NUMBERS.tobytes())
    with pytest.raises(ModelError, match="expected a file in the same folder or below"):
        check(folder, as_initializer(outside(location)))


def test_each_of_two_locations_of_one_tensor_counts(folder: Path) -> None:
    for locations in (("data.bin", "../outside.bin"), ("../outside.bin", "data.bin")):
        tensor = outside(locations[0])
        tensor.external_data.add(key="location", value=locations[1])
        with pytest.raises(ModelError, match=r"outside\.bin"):
            check(folder, as_initializer(tensor))


def test_a_link_is_followed_within_the_folder_only(folder: Path) -> None:
    (folder / "inside").symlink_to("sub/data.bin")
    (folder / "leading-out").symlink_to("../outside.bin")
    check(folder, as_initializer(outside("inside")))
    with pytest.raises(ModelError, match="leading-out leads out of the model's folder"):
        check(folder, as_initializer(outside("leading-out")))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"offset": 1, "length": 16}, "needs 16 bytes at 1 of data.bin, which has 16"),
        ({"offset": -1}, "needs 0 bytes at -1"),
        ({"length": 2**70}, "of data.bin, which has 16"),
        ({"offset": "x"}, "not a number"),
        ({"offset": "9" * 5000}, "not an ONNX file|not a number"),
    ],
)
def test_parts_that_are_not_there(folder: Path, numbers: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        check(folder, as_initializer(outside("data.bin", **numbers)))


def test_a_missing_file_and_a_folder_are_said_to_be_missing(folder: Path) -> None:
    for location in ("nothing.bin", "sub"):
        with pytest.raises(ModelError, match="which does not exist"):
            check(folder, as_initializer(outside(location)))


def compiled(location: str, **more: Any) -> Any:
    node = helper.make_node("EPContext", [], ["y"], domain="com.microsoft", ep_cache_context=location, **more)
    return model(plain_graph(node))


def test_a_compiled_graph_in_another_file_is_held_to_the_same(folder: Path) -> None:
    check(folder, compiled("data.bin", embed_mode=0))
    check(folder, compiled("../anything at all", embed_mode=1))
    check(folder, compiled("../anything at all"))
    with pytest.raises(ModelError, match="a compiled graph in '/etc/passwd'"):
        check(folder, compiled("/etc/passwd", embed_mode=0))


@pytest.mark.parametrize(
    "content",
    [b"\x00", b"\x3a", b"\x3a\xff\xff\xff\xff\x0f", b"\x3b", b"\xff" * 20, b"\x3a\x02\x0a\x7f", b"not a model"],
)
def test_what_is_no_onnx_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelError, match="not an ONNX file, or it is cut short"):
        check_external_data(tmp_path / "m.onnx", Path.resolve)


def test_a_graph_nested_without_end_is_refused(folder: Path) -> None:
    content = b""
    for _ in range(200):
        # A graph's node, its attribute, and in that a graph again.
        for number in (6, 5, 1):
            content = bytes([number << 3 | 2]) + varint(len(content)) + content
    (folder / "model.onnx").write_bytes(b"\x3a" + varint(len(content)) + content)
    with pytest.raises(ModelError, match="not an ONNX file"):
        check_external_data(folder / "model.onnx", Path.resolve)


def varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made, value = made + bytes([value & 127 | 128]), value >> 7
    return made + bytes([value])


@pytest.mark.parametrize(
    "file", sorted((ROOT / "fixtures" / "models").rglob("*.onnx")), ids=lambda file: file.parent.name
)
def test_files_without_external_data_pass(file: Path) -> None:
    check_external_data(file, Path.resolve)


@given(data=st.data())
def test_damaged_files_are_refused_or_pass_and_never_do_more(data: st.DataObject, tmp_path_factory: Any) -> None:
    place = data.draw(st.sampled_from(PLACES))
    content = bytearray(place(outside("data.bin")).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file: Path = tmp_path_factory.getbasetemp() / "damaged" / "m.onnx"
    file.parent.mkdir(exist_ok=True)
    (file.parent / "data.bin").write_bytes(NUMBERS.tobytes())
    file.write_bytes(content)
    with suppress(ModelError, DecodeError):
        check_external_data(file, lambda path: confined_to((file.parent.resolve(),), path))
        # What passed names no other file, by onnx's own reading.
        read: Any = onnx.ModelProto.FromString(bytes(content))
        for tensor in read.graph.initializer:
            assert {each.value for each in tensor.external_data if each.key == "location"} <= {"data.bin"}


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A graph that adds ones, which lie in weights.bin beside it."""
    (tmp_path / "m").mkdir()
    file = write(
        tmp_path / "m" / "model.onnx",
        [helper.make_node("Add", ["images", "w"], ["y"])],
        {"y": ("batch", 3, 8, 8)},
        constants={"w": np.ones((1, 3, 8, 8), np.float32)},
    )
    onnx_: Any = onnx
    onnx_.save(onnx_.load(str(file)), str(file), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (file.parent / "weights.bin").stat().st_size == 3 * 8 * 8 * 4
    return file


def test_a_session_reads_what_lies_beside_its_file_and_nothing_else(beside: Path) -> None:
    (answer,) = Session(beside).run({"images": np.zeros((1, 3, 8, 8), np.float32)})
    assert answer.max() == 1.0
    weights = beside.with_name("weights.bin").rename(beside.parent.parent / "weights.bin")
    beside.with_name("weights.bin").symlink_to(weights)
    with pytest.raises(ModelError, match="leads out of the model's folder"):
        Session(beside)


def test_a_snapshot_of_the_hugging_face_cache_is_read_from_its_blobs(beside: Path) -> None:
    snapshot, blobs = beside.parent.parent / "hub" / "snapshots" / "0123", beside.parent.parent / "hub" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, each in enumerate((beside, beside.with_name("weights.bin"))):
        each.rename(blobs / str(number))
        (snapshot / each.name).symlink_to(f"../../blobs/{number}")
    source = ModelSource(name="m", version="1", folder=snapshot)
    session = Session(snapshot / "model.onnx", confined=partial(confined, source=source))
    assert session.run({"images": np.zeros((1, 3, 8, 8), np.float32)})[0].max() == 1.0
