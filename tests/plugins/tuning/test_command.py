"""``charioteer tune``."""

import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from app.core.cli import command_line
from app.core.cli.terminal import table
from app.core.settings.model import ModelError
from app.plugins.tuning.benchmarking import Measurement, measure_candidates
from app.plugins.tuning.command import TuningOptions, print_figures, tune
from app.plugins.tuning.quantization import choose_images
from tests.support.data.datasets import coco_annotation, write_coco_dataset
from tests.support.data.images import encode_image
from tests.support.servers.server_process import ROOT

MODELS, IMAGES = ROOT / "fixtures" / "models", ROOT / "fixtures" / "images"
FAST: dict[str, Any] = {"runtimes": ("onnxruntime",), "batches": (1,), "threads": (1,), "seconds": 0.03}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the classifier."""
    return shutil.copytree(MODELS / "classifier", tmp_path / "classifier")


@pytest.fixture
def fixed_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure, then set the CPU times, which depend on the machine: threads cost, int8 costs less than fp32."""

    def measure(*arguments: Any) -> list[Measurement]:
        rows = measure_candidates(*arguments)
        costs = [row.candidate.threads + (row.candidate.precision != "int8") for row in rows]
        return [msgspec.structs.replace(row, cpu=cost, rounds=()) for row, cost in zip(rows, costs, strict=True)]

    monkeypatch.setattr("app.plugins.tuning.run.measure_candidates", measure)


def test_unchanged_settings_are_reported_and_not_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    tune(folder, options=TuningOptions(**FAST), write=True)
    output = capsys.readouterr().out
    assert "now, best" in output
    assert "Nothing to change" in output
    assert "Pass --data or --labels" in output
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.usefixtures("fixed_costs")
def test_best_settings_are_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = {"onnxruntime": {"threads": 32}, "labels": ["a"] * 20}
    (folder / "model-settings.json").write_text(json.dumps(slow))
    tune(folder, options=TuningOptions(**FAST, objective="cost"), write=True)
    assert "Written to" in capsys.readouterr().out
    assert json.loads((folder / "model-settings.json").read_text()) == {"labels": ["a"] * 20}


def test_variant_that_changes_answers_too_much_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(IMAGES / "scene.jpg", data / name)
    # The first image calibrates. A black image is a bad calibration: it has none of the values of a scene.
    black, _ = choose_images(data, 2)
    black.write_bytes(encode_image(np.zeros((64, 64, 3), np.uint8), "JPEG"))
    tune(MODELS / "detector", data=data, options=TuningOptions(**FAST, precisions=("int8",), decodes=("full",)))
    output = capsys.readouterr().out
    assert re.search(r"int8 .* refused", output)
    assert "fp32 │   full │     1" in output
    assert "int8 │   full │     1" not in output


@pytest.mark.usefixtures("fixed_costs")
def test_int8_is_written_as_a_new_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    detector = shutil.copytree(MODELS / "detector", tmp_path / "detector")
    (detector / "model-settings.json").write_text('{"onnxruntime": {"threads": 32}}')
    options = TuningOptions(**FAST, precisions=("int8",), decodes=("full",), max_drop=1.0, objective="cost")
    tune(detector, data=IMAGES, options=options, write=True)
    output = capsys.readouterr().out
    written = json.loads((detector / "2" / "model-settings.json").read_text())
    assert written == {"precision": "int8"}, output
    assert (detector / "2" / "quantization.json").is_file()


def test_narrow_terminal_breaks_no_number() -> None:
    figures = table("runtime", "precision", "decode", *(f"figure {number}" for number in range(8)))
    numbers = ("16", "2", "12358.09", "10.08", "1013.15", "312.86", "142.60")
    figures.add_row("onnxruntime", "fp32", "reduced", *numbers, "now, best")
    written = io.StringIO()
    print_figures(figures, Console(file=written, width=80))
    assert [number for number in numbers if number not in written.getvalue().split()] == []


def test_several_values_follow_one_option(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"tune {MODELS / 'half_plus_two'} --runtimes onnxruntime --threads 1 2 --batches 1 2 --seconds 0.01"
    command_line()(command.split(), result_action="return_value")
    assert len(re.findall(r"onnxruntime │ +fp32", capsys.readouterr().out)) == 4


def test_short_time_leaves_out_set_ups_and_images(capsys: pytest.CaptureFixture[str]) -> None:
    short: dict[str, Any] = {**FAST, "batches": (1, 2), "minutes": 1e-6}
    tune(MODELS / "detector", data=IMAGES, options=TuningOptions(**short))
    output = capsys.readouterr().out
    assert "Compared only 1 image, because of --minutes." in output
    names = ("onnxruntime int8", "onnxruntime fp32 with reduced decode", "onnxruntime int8 with reduced decode")
    assert f"{', '.join(names)} were not tried: --minutes is too short." in output
    assert "1 set-up not measured: --minutes is over." in output


def test_image_that_cannot_be_answered_is_named(tmp_path: Path) -> None:
    shutil.copy(IMAGES / "scene.jpg", tmp_path)
    (tmp_path / "broken.jpg").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"broken\.jpg: inputs"):
        tune(MODELS / "detector", data=tmp_path, options=TuningOptions(**FAST, precisions=("fp32",)))


def test_answers_are_measured_with_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_coco_dataset(tmp_path / "dataset", [coco_annotation()])
    tune(MODELS / "detector", labels=tmp_path / "dataset", options=TuningOptions(**FAST, precisions=("fp32",)))
    output = capsys.readouterr().out
    assert "Answers, map_coco on 1 image" in output
    assert len(re.findall(r"onnxruntime │ +fp32 │ +(?:full|reduced) │ +\d\.\d{4} │ -?\d\.\d{4} │", output)) == 2


@pytest.mark.parametrize(("settings", "is_tried"), [({}, True), ({"preprocessing": {"antialias": False}}, False)])
def test_opencv_resize_is_tried_for_models_that_are_resized_as_by_pillow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], is_tried: bool
) -> None:
    classifier = shutil.copytree(MODELS / "classifier", tmp_path / "classifier")
    (classifier / "model-settings.json").write_text(json.dumps(settings))
    tune(classifier, data=IMAGES, options=TuningOptions(**FAST, precisions=("fp32",), decodes=("full",)))
    assert ("full, opencv" in capsys.readouterr().out) is is_tried


@pytest.mark.slow
def test_openvino_is_compared_with_onnxruntime(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = TuningOptions(decodes=("full",), batches=(1,), threads=(1,), seconds=0.02, max_drop=1.0)
    tune(folder, data=IMAGES, options=options)
    output = capsys.readouterr().out
    assert "not tried" not in output
    for precision in ("fp32", "bf16", "int8"):
        assert re.search(rf"openvino │ +{precision} │ +full │ +[01]\.\d{{4}}", output)


def test_missing_extra_is_reported_once_for_all_variants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(IMAGES / "scene.jpg", tmp_path / "a.jpg")
    # The import of this module raises ImportError now.
    monkeypatch.setitem(sys.modules, "onnx", None)
    both: dict[str, Any] = {**FAST, "runtimes": ("onnxruntime", "openvino"), "decodes": ("full",), "resizes": ("own",)}
    tune(MODELS / "classifier", data=tmp_path, options=TuningOptions(**both, precisions=("int8",)))
    output = capsys.readouterr().out
    assert output.count("needs the extra quantize") == 1
    assert "onnxruntime int8, openvino int8 were not tried: Quantisation needs the extra quantize" in output
