"""The label file that a configuration of Triton names."""

from pathlib import Path

from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import inspected


def test_label_filename_of_triton_is_followed(tmp_path: Path) -> None:
    config = 'name: "m"\noutput [ { name: "output0" data_type: TYPE_FP32 dims: [3] label_filename: "words.txt" } ]\n'
    (tmp_path / "config.pbtxt").write_text(config)
    (tmp_path / "words.txt").write_text("red\ngreen light\nblue\n")
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    found = inspected(graphs.source(graphs.channel_means(tmp_path / "model.onnx", softmax=True))).description
    assert found.labels == ("red", "green light", "blue")
