"""Test on which devices graphs run, and which precisions a processor accelerates."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from app.core.runtimes.onnxruntime.devices import CPU, parse_device, parse_devices
from app.core.runtimes.onnxruntime.loading import load
from app.core.runtimes.onnxruntime.precision import is_accelerated
from app.core.runtimes.onnxruntime.session import Session, run_bound
from app.core.settings.model import ModelError, OnnxRuntimeSettings
from tests.core.runtimes.onnxruntime import graphs

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
    file = graphs.channel_means(tmp_path / "model.onnx")
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
