"""Test graphs that name external files: only files beside the graph or below are read."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from app.core.runtimes.folder import resolve_within
from app.core.runtimes.onnxruntime.files.external_data import check_external_data
from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import ModelError
from tests.core.runtimes.onnxruntime.graphs import write

NUMBERS = np.arange(4, dtype=np.float32)
REJECTED_LOCATIONS = [
    "/etc/passwd", "../outside.bin", "sub/../../outside.bin", "./../outside.bin", "..\\outside.bin",
    "*/_ORT_MEM_ADDR_/*",
    ".hidden/data.bin", "__pycache__/data.bin", "data.bin\0/etc/passwd", "data\n.bin", ".", "",
]  # fmt: skip


def external_tensor(location: str, **fields: int) -> Any:
    """Return a tensor of four numbers that are stored in another file."""
    tensor: Any = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **fields}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def make_model(graph: Any, **options: Any) -> Any:
    proto: Any = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], **options)
    proto.ir_version = 8
    return proto


def plain_graph(*nodes: Any, **options: Any) -> Any:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    return helper.make_graph(list(nodes), "g", [], [value], **options)


def attribute_graph(tensor: Any) -> Any:
    return plain_graph(helper.make_node("Constant", [], ["y"], value=tensor))


def as_initializer(tensor: Any) -> Any:
    return make_model(plain_graph(helper.make_node("Identity", ["w"], ["y"]), initializer=[tensor]))


def as_attribute_list(tensor: Any) -> Any:
    node: Any = helper.make_node("Odd", [], ["y"])
    node.attribute.append(helper.make_attribute("all", [tensor]))
    return make_model(plain_graph(node))


def as_subgraph(tensor: Any) -> Any:
    branches = {"then_branch": attribute_graph(tensor), "else_branch": plain_graph()}
    inner = plain_graph(helper.make_node("If", ["c"], ["y"], **branches))
    return make_model(plain_graph(helper.make_node("If", ["c"], ["y"], then_branch=inner)))


def as_function(tensor: Any) -> Any:
    nodes = attribute_graph(tensor).node
    function = helper.make_function("own", "F", [], ["y"], nodes, [helper.make_opsetid("", 17)])
    return make_model(plain_graph(helper.make_node("F", [], ["y"], domain="own")), functions=[function])


def as_training(tensor: Any) -> Any:
    proto = make_model(plain_graph())
    proto.training_info.add().initialization.CopyFrom(attribute_graph(tensor))
    return proto


GRAPHS: Mapping[str, Callable[[Any], Any]] = {
    "initializer": as_initializer,
    "sparse values": lambda tensor: make_model(
        plain_graph(sparse_initializer=[onnx.SparseTensorProto(values=tensor, dims=[4])])
    ),
    "attribute": lambda tensor: make_model(attribute_graph(tensor)),
    "attribute list": as_attribute_list,
    "subgraph": as_subgraph,
    "function": as_function,
    "training": as_training,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "m"
    (path / "sub").mkdir(parents=True)
    (path / ".hidden").mkdir()
    (path / "__pycache__").mkdir()
    for name in ("data.bin", "sub/data.bin", "../outside.bin", ".hidden/data.bin", "__pycache__/data.bin"):
        (path / name).write_bytes(NUMBERS.tobytes())
    return path


def check_graph(folder: Path, proto: Any) -> None:
    file = folder / "model.onnx"
    file.write_bytes(proto.SerializeToString())
    check_external_data(file, lambda path: resolve_within((folder.resolve(),), path))


@pytest.mark.parametrize("part", GRAPHS)
def test_location_outside_folder_is_rejected_in_every_part_of_graph(folder: Path, part: str) -> None:
    build_graph = GRAPHS[part]
    check_graph(folder, build_graph(external_tensor("data.bin")))
    check_graph(folder, build_graph(external_tensor("./sub/data.bin", offset=4, length=12)))
    with pytest.raises(ModelError, match=r"external data in '\.\./outside\.bin'"):
        check_graph(folder, build_graph(external_tensor("../outside.bin")))


@pytest.mark.parametrize("location", REJECTED_LOCATIONS)
def test_unsafe_location_is_rejected(folder: Path, location: str) -> None:
    (folder / "*" / "_ORT_MEM_ADDR_").mkdir(parents=True)
    (folder / "*" / "_ORT_MEM_ADDR_" / "*").write_bytes(NUMBERS.tobytes())
    with pytest.raises(ModelError, match="expected a file in the same folder or below"):
        check_graph(folder, as_initializer(external_tensor(location)))


def test_both_locations_of_one_tensor_are_checked(folder: Path) -> None:
    for locations in (("data.bin", "../outside.bin"), ("../outside.bin", "data.bin")):
        tensor = external_tensor(locations[0])
        tensor.external_data.add(key="location", value=locations[1])
        with pytest.raises(ModelError, match=r"outside\.bin"):
            check_graph(folder, as_initializer(tensor))


def test_a_link_is_followed_within_the_folder_only(folder: Path) -> None:
    (folder / "inside").symlink_to("sub/data.bin")
    (folder / "leading-out").symlink_to("../outside.bin")
    check_graph(folder, as_initializer(external_tensor("inside")))
    with pytest.raises(ModelError, match="leading-out leads out of the model's folder"):
        check_graph(folder, as_initializer(external_tensor("leading-out")))


@pytest.mark.parametrize(
    ("fields", "error_text"),
    [
        ({"offset": 1, "length": 16}, "needs 16 bytes at 1 of data.bin, which has 16"),
        ({"offset": -1}, "needs 0 bytes at -1"),
        ({"length": 2**70}, "of data.bin, which has 16"),
        ({"offset": "x"}, "not a number"),
        ({"offset": "9" * 5000}, "not an ONNX file|not a number"),
    ],
)
def test_invalid_range_of_data_file_is_rejected(folder: Path, fields: Any, error_text: str) -> None:
    with pytest.raises(ModelError, match=error_text):
        check_graph(folder, as_initializer(external_tensor("data.bin", **fields)))


def test_missing_file_or_folder_as_data_is_rejected(folder: Path) -> None:
    for location in ("nothing.bin", "sub"):
        with pytest.raises(ModelError, match="which does not exist"):
            check_graph(folder, as_initializer(external_tensor(location)))


def test_compiled_graph_is_rejected(folder: Path) -> None:
    node = helper.make_node("EPContext", [], ["y"], domain="com.microsoft", ep_cache_context="/etc/passwd")
    with pytest.raises(ModelError, match=r"is a compiled graph .* serve the graph that it was compiled from"):
        check_graph(folder, make_model(plain_graph(node)))


@pytest.mark.parametrize(
    "content",
    [b"\x00", b"\x3a", b"\x3a\xff\xff\xff\xff\x0f", b"\x3b", b"\xff" * 20, b"\x3a\x02\x0a\x7f", b"not a model"],
)
def test_invalid_onnx_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelError, match="not an ONNX file, or it is cut short"):
        check_external_data(tmp_path / "m.onnx", Path.resolve)


def test_deeply_nested_graph_is_rejected(folder: Path) -> None:
    content = b""
    for _ in range(200):
        # These are the field numbers of a graph in an attribute, an attribute in a node, and a node in a graph.
        for number in (6, 5, 1):
            content = bytes([number << 3 | 2]) + varint(len(content)) + content
    (folder / "model.onnx").write_bytes(b"\x3a" + varint(len(content)) + content)
    with pytest.raises(ModelError, match="not an ONNX file"):
        check_external_data(folder / "model.onnx", Path.resolve)


def varint(value: int) -> bytes:
    encoded = b""
    while value > 127:
        encoded, value = encoded + bytes([value & 127 | 128]), value >> 7
    return encoded + bytes([value])


@given(data=st.data())
def test_damaged_file_is_rejected_or_names_only_allowed_files(data: st.DataObject, tmp_path_factory: Any) -> None:
    part = data.draw(st.sampled_from(list(GRAPHS)))
    content = bytearray(GRAPHS[part](external_tensor("data.bin")).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file: Path = tmp_path_factory.getbasetemp() / "damaged" / "m.onnx"
    file.parent.mkdir(exist_ok=True)
    (file.parent / "data.bin").write_bytes(NUMBERS.tobytes())
    file.write_bytes(content)
    with suppress(ModelError, DecodeError):
        check_external_data(file, lambda path: resolve_within((file.parent.resolve(),), path))
        # If the check passes, onnx itself must read no other location.
        parsed: Any = onnx.ModelProto.FromString(bytes(content))
        for tensor in parsed.graph.initializer:
            assert {entry.value for entry in tensor.external_data if entry.key == "location"} <= {"data.bin"}


@pytest.fixture
def graph_with_weights(tmp_path: Path) -> Path:
    """Write a graph that adds ones, which are stored in weights.bin beside it."""
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


def test_session_reads_weights_beside_graph_but_not_outside_folder(graph_with_weights: Path) -> None:
    (answer,) = Session(graph_with_weights).run({"images": np.zeros((1, 3, 8, 8), np.float32)})
    assert answer.max() == 1.0
    weights = graph_with_weights.with_name("weights.bin").rename(graph_with_weights.parent.parent / "weights.bin")
    graph_with_weights.with_name("weights.bin").symlink_to(weights)
    with pytest.raises(ModelError, match="leads out of the model's folder"):
        Session(graph_with_weights)
