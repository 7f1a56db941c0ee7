"""Test sessions on valid and invalid files, their devices, and the precisions that a processor accelerates."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from app.core.runtimes.onnxruntime.devices import CPU, parse_device, parse_devices
from app.core.runtimes.onnxruntime.loading import load
from app.core.runtimes.onnxruntime.precision import is_accelerated
from app.core.runtimes.onnxruntime.session import Session, run_bound, without_processor_warnings
from app.core.settings.model import ModelError, OnnxRuntimeSettings
from tasks.inference.error import ErrorKind, InferenceError
from tests.core.runtimes.onnxruntime import graphs
from tests.support.servers.server_process import ROOT

HALF_PLUS_TWO = ROOT / "fixtures" / "models" / "half_plus_two" / "model.onnx"


def test_graph_that_cannot_run_is_model_failure(tmp_path: Path) -> None:
    session = Session(graphs.channel_means(tmp_path / "model.onnx"))
    with pytest.raises(InferenceError) as caught:
        session.run({"images": np.zeros((1, 3, 9, 9), np.float32)})
    assert caught.value.kind is ErrorKind.MODEL_FAILED
    expected = "The model failed: Got invalid dimensions for input: images for the following indices"
    assert caught.value.message == expected


def test_signed_int8_weights_do_not_saturate(tmp_path: Path) -> None:
    # Without VNNI, a processor adds pairs of products in 16 bits: 2 x 255 x 127 is more.
    one, zero, signed_zero, step = (
        np.ones((), np.float32),
        np.zeros((), np.uint8),
        np.zeros((), np.int8),
        np.float32(2048),
    )
    text = """(uint8[1, 64] images) => (uint8[1, 16] output0) {
        output0 = QLinearMatMul(images, one, zero, weights, one, signed_zero, step, zero)
    }"""
    weights = np.full((64, 16), 127, np.int8)
    constants = {"one": one, "zero": zero, "weights": weights, "signed_zero": signed_zero, "step": np.asarray(step * 8)}
    (output,) = Session(graphs.parse(tmp_path / "model.onnx", text, constants)).run(
        {"images": np.full((1, 64), 255, np.uint8)}
    )
    assert output.tolist() == [[round(64 * 255 * 127 / (2048 * 8))] * 16]


CONTENTS = {
    "empty": b"",
    "random": np.random.default_rng(0).bytes(5000),
    "text": b"This is not a model.\nIt has two lines.\n",
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "pickle": pickle.dumps({"weights": [1.0]}),
}


def write_broken_file(folder: Path, defect: str) -> Path:
    valid_file = graphs.constant(folder / "whole.onnx", {"output0": np.ones((1, 2000), np.float32)})
    file = folder / "model.onnx"
    if defect in CONTENTS:
        file.write_bytes(CONTENTS[defect])
    elif defect == "truncated":
        file.write_bytes(valid_file.read_bytes()[:4000])
    elif defect == "folder":
        file.mkdir()
    elif defect == "opset":
        model = graphs.read_model(valid_file)
        model.opset_import[0].version = 9999
        graphs.write_model(model, file)
    elif defect == "operator":
        graphs.write(file, [helper.make_node("Conjure", ["images"], ["output0"])], {"output0": ["batch", 3]})
    return file


@pytest.mark.parametrize(
    ("defect", "reason"),
    [
        ("missing", "does not exist"),
        ("folder", "is not a file"),
        ("empty", "is empty"),
        ("truncated", "cut short"),
        ("random", "cannot be loaded"),
        ("text", "cannot be loaded"),
        ("pointer", "Git LFS pointer"),
        ("pickle", "is a PyTorch pickle"),
        ("opset", "Opset 9999"),
        ("operator", "Conjure"),
    ],
)
def test_bad_file_error_is_one_sentence_with_its_name(
    tmp_path: Path, defect: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_broken_file(tmp_path, defect)
    with pytest.raises(ModelError) as caught:
        Session(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert reason in message
    assert "\n" not in message
    assert "onnxruntime_src" not in message
    assert "Traceback" not in capfd.readouterr().err


def test_output_that_is_no_tensor_is_rejected_with_the_way_to_export_tensors(tmp_path: Path) -> None:
    maps: Any = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    graph: Any = helper.make_graph(
        [helper.make_node("ZipMap", ["x"], ["scores"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])],
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_value_info("scores", helper.make_sequence_type_proto(maps))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    graphs.write_model(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"output 'scores' is a seq\(map.* export it .* zipmap=False"):
        Session(tmp_path / "model.onnx")


def test_bf16_output_is_rejected(tmp_path: Path) -> None:
    node, types = helper.make_node("Cast", ["images"], ["y"], to=TensorProto.BFLOAT16), {"y": TensorProto.BFLOAT16}
    file = graphs.write(tmp_path / "model.onnx", [node], {"y": [2]}, shape=(2,), output_types=types)
    with pytest.raises(ModelError, match=r"output 'y' is a tensor\(bfloat16\), .*; export it in float16 or float32"):
        Session(file)


def test_only_requested_outputs_are_computed(tmp_path: Path) -> None:
    outputs = {"first": np.ones((1, 2), np.float32), "second": np.zeros((1, 3), np.float32)}
    session = Session(graphs.constant(tmp_path / "model.onnx", outputs))
    (found,) = session.run({"images": np.zeros((1, 3, 8, 8), np.float32)}, ["second"])
    assert found.shape == (1, 3)


@pytest.mark.parametrize(("environment_value", "expected"), [(None, "1"), ("0", "0")])
def test_onnxruntime_is_imported_by_the_first_session_without_telemetry_unless_environment_enables_it(
    environment_value: str | None, expected: str
) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from app.core.runtimes import runtime\n"
        "from app.core.runtimes.onnxruntime import loading\n"
        "from app.core.runtimes.onnxruntime.session import Session\n"
        "assert 'onnxruntime' not in sys.modules\n"
        f"Session(pathlib.Path({str(HALF_PLUS_TWO)!r}))\n"
        "print(os.environ['ORT_DISABLE_TELEMETRY'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    if environment_value is not None:
        environment["ORT_DISABLE_TELEMETRY"] = environment_value
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == expected


CUDA = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
PLAIN = ("AzureExecutionProvider", "CPUExecutionProvider")


@pytest.mark.parametrize(
    ("name", "options", "memory"),
    [
        ("cpu", {}, None),
        ("cuda", {"CUDA": {"device_id": "0"}}, ("cuda", 0)),
        ("cuda:1", {"CUDA": {"device_id": "1"}}, ("cuda", 1)),
        ("tensorrt:2", {"Tensorrt": {"device_id": "2"}, "CUDA": {"device_id": "2"}}, ("cuda", 2)),
        ("openvino:GPU", {"OpenVINO": {"device_type": "GPU"}}, None),
    ],
)
def test_device_has_its_number_or_type_and_falls_back_to_cpu(
    name: str, options: dict[str, dict[str, str]], memory: tuple[str, int] | None
) -> None:
    device = parse_device(name, (*CUDA, "OpenVINOExecutionProvider"))
    assert device.providers == [(f"{kind}ExecutionProvider", value) for kind, value in {**options, "CPU": {}}.items()]
    assert device.memory == memory


def test_auto_prefers_gpu_but_not_tensorrt() -> None:
    assert [device.name for device in parse_devices("auto", CUDA)] == ["cuda", "cpu"]
    assert parse_devices("auto", PLAIN) == [CPU]


@pytest.mark.parametrize(
    ("name", "error_text"),
    [
        ("cuda:0", "needs an ONNX Runtime with CUDAExecutionProvider; the installed one has CPUExecutionProvider"),
        ("gpu", "Expected auto, cpu, cuda, tensorrt, openvino, such as cuda:0, got 'gpu'"),
        ("CUDA:0", "Expected auto"),
        ("", "Expected auto"),
        ("cpu:0:1", "Expected auto"),
        ("cuda:first", "Expected a number after the colon"),
    ],
)
def test_unavailable_or_unknown_device_is_rejected(name: str, error_text: str) -> None:
    with pytest.raises(ModelError, match=error_text):
        parse_device(name, CUDA if name == "cuda:first" else PLAIN)


def test_concurrent_calls_on_several_instances_are_correct(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx")
    session = Session(file, OnnxRuntimeSettings(devices=("cpu", "auto"), instances=2, threads=2))
    pixels = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    feeds = {session.inputs[0].name: pixels}
    expected = Session(file).run(feeds)[0]
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(session.run, feeds) for _ in range(200)]
    assert all(np.array_equal(answer.result()[0], expected) for answer in answers)


def test_every_instance_runs_a_blank_image_before_the_model_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: set[int] = set()
    session_class: Any = onnxruntime.InferenceSession
    run = session_class.run

    def counted(session: object, *args: Any) -> Any:
        called.add(id(session))
        return run(session, *args)

    monkeypatch.setattr(session_class, "run", counted)
    file = graphs.channel_means(tmp_path / "model.onnx", output="probs")
    load(graphs.source(file, onnxruntime={"instances": 3}))
    assert len(called) == 3


def test_io_binding_gives_same_answers(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx")
    plain = Session(file)
    feeds = {plain.inputs[0].name: np.random.default_rng(0).random((2, 3, 8, 8), np.float32).transpose(0, 1, 3, 2)}
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [output.name for output in plain.outputs]
    bound = run_bound(session, ("cpu", 0), onnxruntime.OrtValue, feeds, names)
    for plain_output, bound_output in zip(plain.run(feeds), bound, strict=True):
        np.testing.assert_array_equal(plain_output, bound_output)


@pytest.mark.parametrize(
    ("flags", "accelerated"),
    [
        ("flags : fpu avx2", {"fp32"}),
        ("flags : avx512f avx512_vnni", {"fp32", "int8"}),
        ("flags : avx512_bf16 amx_int8", {"fp32", "bf16", "int8"}),
        ("Features : asimd asimddp bf16", {"fp32", "bf16", "int8"}),
    ],
)
def test_precisions_are_accelerated_by_processors_with_their_instructions(
    tmp_path: Path, flags: str, accelerated: set[str]
) -> None:
    (tmp_path / "cpuinfo").write_text(f"model name : any\n{flags}\n")
    precisions = ("fp32", "bf16", "int8")
    assert {name for name in precisions if is_accelerated(name, tmp_path / "cpuinfo")} == accelerated


def test_unknown_processor_is_not_reported_as_slow(tmp_path: Path) -> None:
    assert is_accelerated("bf16", tmp_path / "missing")


def test_only_warnings_about_the_processor_are_dropped_from_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with without_processor_warnings():
        for text in ("one", "onnxruntime cpuid_info warning: Unknown CPU vendor. cpuinfo_vendor value: 0", "two"):
            os.write(2, f"{text}\n".encode())
    os.write(2, b"three\n")
    assert capfd.readouterr().err == "one\ntwo\nthree\n"
