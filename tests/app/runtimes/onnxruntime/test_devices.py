"""Where graphs run."""

import threading
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from app.runtimes.onnxruntime.binding import run_bound
from app.runtimes.onnxruntime.devices import CPU, device_called, devices_called
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelError, OnnxRuntimeSettings
from tests.app.runtimes.onnxruntime import graphs

CUDA = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
PLAIN = ("AzureExecutionProvider", "CPUExecutionProvider")


def test_the_processor_is_always_there() -> None:
    assert device_called("cpu", PLAIN) == CPU
    assert devices_called("auto", PLAIN) == [CPU]


def test_a_gpu_has_a_number_and_falls_back_for_what_it_cannot() -> None:
    second = device_called("cuda:1", CUDA)
    assert second.providers == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert second.options == [{"device_id": "1"}, {}]
    assert second.memory == ("cuda", 1)
    assert device_called("cuda", CUDA).memory == ("cuda", 0)


def test_the_best_device_is_a_gpu_but_no_engine_is_built_unasked() -> None:
    assert [each.name for each in devices_called("auto", CUDA)] == ["cuda", "cpu"]
    engine = device_called("tensorrt:2", CUDA)
    assert engine.providers == ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    assert engine.options == [{"device_id": "2"}, {"device_id": "2"}, {}]


def test_others_have_names_of_their_own() -> None:
    intel = device_called("openvino:GPU", ("OpenVINOExecutionProvider", "CPUExecutionProvider"))
    assert intel.options == [{"device_type": "GPU"}, {}]
    apple = devices_called("auto", ("CoreMLExecutionProvider", "CPUExecutionProvider"))[0]
    assert apple.providers[0] == "CoreMLExecutionProvider"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "cuda:0",
            "needs an ONNX Runtime with CUDAExecutionProvider; the installed one has CPUExecutionProvider",
        ),
        ("gpu", "Expected auto, cpu, cuda, tensorrt, openvino, coreml, such as cuda:0, got 'gpu'"),
        ("CUDA:0", "Expected auto"),
        ("", "Expected auto"),
        ("cpu:0:1", "Expected auto"),
    ],
)
def test_what_is_not_there_is_told_in_a_sentence(name: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        device_called(name, PLAIN)


def test_a_gpu_is_numbered() -> None:
    with pytest.raises(ModelError, match="Expected a number after the colon"):
        device_called("cuda:first", CUDA)


def test_copies_of_a_model_share_the_calls(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx")
    session = Session(file, OnnxRuntimeSettings(devices=("cpu", "auto"), instances=2, threads=2))
    pictures = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    feeds = {session.inputs[0].name: pictures}
    expected = Session(file).run(feeds)[0]
    answers: list[bool] = []

    def ask() -> None:
        answers.extend(bool(np.array_equal(session.run(feeds)[0], expected)) for _ in range(50))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == [True] * 200


def test_bound_calls_answer_as_others_do(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx")
    plain = Session(file)
    feeds = {plain.inputs[0].name: np.random.default_rng(0).random((2, 3, 8, 8), np.float32).transpose(0, 1, 3, 2)}
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [each.name for each in plain.outputs]
    bound = run_bound(session, ("cpu", 0), onnxruntime.OrtValue, feeds, names)
    for one, other in zip(plain.run(feeds), bound, strict=True):
        np.testing.assert_array_equal(one, other)
