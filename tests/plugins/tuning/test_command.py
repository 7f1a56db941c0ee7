"""``charioteer tune``."""

import io
import json
import re
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from app.core.cli.terminal import table
from app.core.settings.model import ModelError
from app.core.settings.server import SettingsError
from app.plugins.tuning.benchmarking import Measurement, measure_candidates
from app.plugins.tuning.command import TuningOptions, print_figures, tune
from app.plugins.tuning.quantization import choose_images
from tests.support.command_line import charioteer
from tests.support.data.datasets import coco_annotation, write_coco_dataset
from tests.support.data.images import encode_image
from tests.support.servers.server_process import ROOT

MODELS, IMAGES = ROOT / "fixtures" / "models", ROOT / "fixtures" / "images"
FAST: dict[str, Any] = {"runtimes": ("onnxruntime",), "batches": (1,), "threads": (1,), "seconds": 0.03}


def run(path: Path, *, write: bool = False, **options: Any) -> str:
    """Run the command with options beside the fast ones, and return its output."""
    images = {name: options.pop(name, None) for name in ("data", "labels")}
    with redirect_stdout(io.StringIO()) as output:
        tune(path, **images, options=TuningOptions(**FAST | options), write=write)
    return output.getvalue()


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


def test_unchanged_settings_are_reported_and_not_written(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    output = run(folder, write=True)
    assert all(text in output for text in ("now, best", "Nothing to change", "Pass --data or --labels"))
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.usefixtures("fixed_costs")
def test_best_settings_are_written(folder: Path) -> None:
    slow = {"onnxruntime": {"threads": 32}, "labels": ["a"] * 20}
    (folder / "model-settings.json").write_text(json.dumps(slow))
    assert "Written to" in run(folder, write=True, objective="cost")
    assert json.loads((folder / "model-settings.json").read_text()) == {"labels": ["a"] * 20}


def test_variant_that_changes_answers_too_much_is_rejected(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(IMAGES / "scene.jpg", tmp_path / name)
    # The first image calibrates. A black image is a bad calibration: it has none of the values of a scene.
    black, _ = choose_images(tmp_path, 2)
    black.write_bytes(encode_image(np.zeros((64, 64, 3), np.uint8), "JPEG"))
    output = run(MODELS / "detector", data=tmp_path, precisions=("int8",), decodes=("full",))
    assert re.search(r"int8 .* refused", output)
    assert "fp32 │   full │     1" in output
    assert "int8 │   full │     1" not in output


@pytest.mark.usefixtures("fixed_costs")
def test_int8_is_written_as_a_new_version(folder: Path) -> None:
    (folder / "model-settings.json").write_text('{"onnxruntime": {"threads": 32}}')
    options: dict[str, Any] = {"precisions": ("int8",), "decodes": ("full",), "resizes": ("own",), "max_drop": 1.0}
    output = run(folder, data=IMAGES, write=True, objective="cost", **options)
    written = json.loads((folder / "2" / "model-settings.json").read_text())
    assert written == {"precision": "int8"}, output
    assert (folder / "2" / "quantization.json").is_file()


def test_narrow_terminal_breaks_no_number() -> None:
    figures = table("runtime", "precision", "decode", *(f"figure {number}" for number in range(8)))
    numbers = ("16", "2", "12358.09", "10.08", "1013.15", "312.86", "142.60")
    figures.add_row("onnxruntime", "fp32", "reduced", *numbers, "now, best")
    written = io.StringIO()
    print_figures(figures, Console(file=written, width=80))
    assert [number for number in numbers if number not in written.getvalue().split()] == []


def test_several_values_follow_one_option() -> None:
    model = MODELS / "half_plus_two"
    values = "--runtimes onnxruntime --threads 1 2 --batches 1 2 --seconds 0.01"
    output = charioteer("tune", model, *values.split()).stdout
    assert len(re.findall(r"onnxruntime │ +fp32", output)) == 4


def test_short_time_leaves_out_set_ups_and_images() -> None:
    output = run(MODELS / "detector", data=IMAGES, batches=(1, 2), minutes=1e-6)
    assert "Compared only 1 image, because of --minutes." in output
    names = ("onnxruntime int8", "onnxruntime fp32 with reduced decode", "onnxruntime int8 with reduced decode")
    assert f"{', '.join(names)} were not tried: --minutes is too short." in output
    assert "1 set-up not measured: --minutes is over." in output


def test_image_that_cannot_be_answered_is_named(tmp_path: Path) -> None:
    write_coco_dataset(tmp_path, [coco_annotation()])
    for image in tmp_path.rglob("*.jpg"):
        image.write_bytes(image.read_bytes()[:-20])
    with pytest.raises(ModelError, match=r"\.jpg: inputs"):
        run(MODELS / "detector", labels=tmp_path, precisions=("fp32",))


def test_image_of_a_folder_that_cannot_be_decoded_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"No image in .* can be used:\n  .*broken\.jpg: Expected an encoded image"):
        run(MODELS / "detector", data=tmp_path, precisions=("fp32",))
    shutil.copy(IMAGES / "scene.jpg", tmp_path)
    output = run(MODELS / "detector", data=tmp_path, precisions=("fp32",), decodes=("full",))
    assert "agreement on 1 image" in output
    assert "broken.jpg: Expected an encoded image" in output


def test_answers_are_measured_with_labels(tmp_path: Path) -> None:
    write_coco_dataset(tmp_path, [coco_annotation()])
    with pytest.raises(SettingsError, match="--data: no effect with --labels"):
        run(MODELS / "detector", labels=tmp_path, data=IMAGES)
    output = run(MODELS / "detector", labels=tmp_path, precisions=("fp32",))
    assert "Answers, map_coco on 1 image" in output
    assert len(re.findall(r"onnxruntime │ +fp32 │ +(?:full|reduced) │ +\d\.\d{4} │ -?\d\.\d{4} │", output)) == 2


@pytest.mark.parametrize(("settings", "is_tried"), [({}, True), ({"preprocessing": {"antialias": False}}, False)])
def test_opencv_resize_is_tried_for_models_that_are_resized_as_by_pillow(
    folder: Path, settings: dict[str, Any], is_tried: bool
) -> None:
    (folder / "model-settings.json").write_text(json.dumps(settings))
    assert ("full, opencv" in run(folder, data=IMAGES, precisions=("fp32",), decodes=("full",))) is is_tried


@pytest.mark.slow
def test_openvino_is_compared_with_onnxruntime(folder: Path) -> None:
    output = run(folder, data=IMAGES, runtimes=("onnxruntime", "openvino"), decodes=("full",), max_drop=1.0)
    assert "not tried" not in output
    for precision in ("fp32", "bf16", "int8"):
        assert re.search(rf"openvino │ +{precision} │ +full │ +[01]\.\d{{4}}", output)


def test_missing_extra_is_reported_once_for_all_variants(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(IMAGES / "scene.jpg", tmp_path / "a.jpg")
    # The import of this module raises ImportError now.
    monkeypatch.setitem(sys.modules, "onnx", None)
    options: dict[str, Any] = {"runtimes": ("onnxruntime", "openvino"), "decodes": ("full",), "resizes": ("own",)}
    output = run(folder, data=tmp_path, precisions=("int8",), **options)
    assert output.count("needs the extra quantize") == 1
    assert "onnxruntime int8, openvino int8 were not tried: Quantisation needs the extra quantize" in output
