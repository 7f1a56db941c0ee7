"""Test boxes with known coordinates."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tasks.inference.error import InferenceError
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import all_close, detection_input, detector, uniform_image

NAMES = ("cat", "dog", "fox")
PROPERTIES = graphs.properties("detect", NAMES, (64, 64))
SHAPE = ("batch", 3, 64, 64)

# A 64x64 letterbox halves a 128x64 image, and pads it with 16 rows above and below.
WIDE = uniform_image(64, 128, 0)
COLUMNS = [
    # cx, cy, w, h, cat, dog, fox
    [16, 24, 8, 4, 0.1, 0.9, 0.2],
    [17, 24, 8, 4, 0.1, 0.8, 0.2],
    [17, 24, 8, 4, 0.7, 0.3, 0.2],
    [40, 32, 4, 4, 0.0, 0.0, 0.6],
    [50, 32, 4, 4, 0.3, 0.2, 0.1],
]
EXPECTED = [("dog", 0.9, [24, 12, 40, 20]), ("cat", 0.7, [26, 12, 42, 20]), ("fox", 0.6, [76, 28, 84, 36])]
ROWS = [[12, 22, 20, 26, 0.9, 1], [13, 22, 21, 26, 0.7, 0], [38, 30, 42, 34, 0.6, 2]]


def layouts(folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    transposed = np.ascontiguousarray(graphs.raw(COLUMNS).transpose(0, 2, 1))

    def write(name: str, output: Any, properties: dict[str, str]) -> Path:
        return graphs.constant(folder / f"{name}.onnx", {"output0": output}, shape=SHAPE, properties=properties)

    return {
        "raw": (write("raw", graphs.raw(COLUMNS), PROPERTIES), {}),
        "raw, transposed": (write("transposed", transposed, PROPERTIES), {}),
        "raw, transposed, declared": (write("declared", transposed, {}), {"layout": "raw-transposed", "labels": NAMES}),
        "raw, nothing known": (write("unknown", graphs.raw(COLUMNS), {}), {"labels": NAMES}),
        "nms": (write("nms", graphs.rows(ROWS), PROPERTIES), {}),
        "end2end": (write("end2end", graphs.rows(ROWS), {**PROPERTIES, "end2end": "True"}), {}),
        "nms, few": (write("few", graphs.rows(ROWS, max_rows=3), PROPERTIES), {}),
    }


@pytest.mark.parametrize(
    "layout",
    ["raw", "raw, transposed", "raw, transposed, declared", "raw, nothing known", "nms", "end2end", "nms, few"],
)
def test_every_layout_gives_the_same_boxes(tmp_path: Path, layout: str) -> None:
    file, declared = layouts(tmp_path)[layout]
    (found,) = detector(file, **declared)([detection_input(WIDE)])
    assert found.labels == [label for label, _, _ in EXPECTED]
    assert found.scores == pytest.approx([score for _, score, _ in EXPECTED])
    assert all_close(found.boxes, [box for _, _, box in EXPECTED])
    assert (found.scores.dtype, found.boxes.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("layout", ["raw", "raw, transposed"])
def test_agnostic_suppression_drops_worse_boxes_of_other_classes(tmp_path: Path, layout: str) -> None:
    (found,) = detector(layouts(tmp_path)[layout][0])([detection_input(WIDE, agnostic=True)])
    assert found.labels == ["dog", "fox"]


def test_classes_without_names_are_labelled_by_number(tmp_path: Path) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {"output0": graphs.rows(ROWS)}, shape=SHAPE)
    (found,) = detector(file)([detection_input(WIDE)])
    assert found.labels == ["1", "0", "2"]


def test_each_image_has_its_own_thresholds(tmp_path: Path) -> None:
    model = detector(layouts(tmp_path)["raw"][0])
    inputs = [
        detection_input(WIDE),
        detection_input(WIDE, 0.65),
        detection_input(WIDE, 0.2),
        detection_input(WIDE, 0.95),
        detection_input(WIDE, 0.65, 0.9),
    ]
    assert [len(found.labels) for found in model(inputs)] == [3, 2, 4, 0, 3]


def test_score_equal_to_threshold_is_kept(tmp_path: Path) -> None:
    output = graphs.raw([[8, 8, 4, 4, 0.5, 0, 0]])
    file = graphs.constant(tmp_path / "model.onnx", {"output0": output}, shape=SHAPE, properties=PROPERTIES)
    assert [
        len(found.labels) for found in detector(file)([detection_input(WIDE, 0.5), detection_input(WIDE, 0.51)])
    ] == [1, 0]


@pytest.mark.parametrize("layout", ["raw", "nms"])
def test_padding_and_non_finite_candidates_are_dropped(tmp_path: Path, layout: str) -> None:
    nan, inf = float("nan"), float("inf")
    if layout == "raw":
        output = graphs.raw(
            [[8, 8, 4, 4, nan, 0, 0], [nan, 8, 4, 4, 0.9, 0, 0], [8, inf, 4, 4, 0.9, 0, 0], [9, 9, 4, 4, 0.3, 0, 0]]
        )
    else:
        output = graphs.rows(
            [[8, 8, 4, 4, nan, 0], [nan, 8, 4, 4, 0.9, 0], [8, 8, 4, 4, 0.9, nan], [7, 7, 9, 9, 0.3, 0]]
        )
    file = graphs.constant(tmp_path / "model.onnx", {"output0": output}, shape=SHAPE, properties=PROPERTIES)
    (found,) = detector(file)([detection_input(WIDE, 0)])
    assert found.scores.tolist() == pytest.approx([0.3])
    assert np.isfinite(found.boxes).all()


def test_class_without_label_is_model_failure(tmp_path: Path) -> None:
    output = graphs.rows([[8, 8, 9, 9, 0.9, 3]])
    file = graphs.constant(tmp_path / "model.onnx", {"output0": output}, shape=SHAPE, properties=PROPERTIES)
    with pytest.raises(InferenceError, match="class number 3, but has only 3 labels"):
        detector(file)([detection_input(WIDE)])


def test_stretch_and_crop_are_undone_in_boxes(tmp_path: Path) -> None:
    file = layouts(tmp_path)["nms"][0]
    (stretched,) = detector(file, preprocessing={"resize": "stretch"})([detection_input(WIDE, 0.8)])
    assert all_close(stretched.boxes, [[24, 22, 40, 26]])
    (cropped,) = detector(file, preprocessing={"resize": "crop"})([detection_input(WIDE, 0.8)])
    assert all_close(cropped.boxes, [[44, 22, 52, 26]])


def write_brightness_detector(file: Path, batch: int | str, datatype: int) -> Path:
    """Write a detector of one box whose score is the mean of the image, including the letterbox."""
    base, gain = graphs.raw([[32, 32, 16, 16, 0.0]]), graphs.raw([[0, 0, 0, 0, 1.0]])
    properties = graphs.properties("detect", ("light",), (64, 64))
    return graphs.affine(
        file, {"output0": (base, gain)}, shape=(batch, 3, 64, 64), datatype=datatype, properties=properties
    )


@pytest.mark.parametrize("batch", ["batch", 1, 4])
@pytest.mark.parametrize(
    ("datatype", "scale"), [(TensorProto.FLOAT, 1 / 255), (TensorProto.FLOAT16, 1 / 255), (TensorProto.UINT8, 1)]
)
def test_each_image_has_its_own_answer(tmp_path: Path, batch: int | str, datatype: int, scale: float) -> None:
    model = detector(write_brightness_detector(tmp_path / "model.onnx", batch, datatype))
    images = [
        uniform_image(64, 128, 200),
        uniform_image(128, 64, 40),
        uniform_image(64, 64, 255),
        uniform_image(10, 10, 3),
        uniform_image(30, 60, 90),
    ]
    found = model([detection_input(image, 0) for image in images])
    greys = [(200 + 114) / 2, (40 + 114) / 2, 255, 3, (90 + 114) / 2]
    assert [float(detections.scores[0]) for detections in found] == pytest.approx(
        [grey * scale for grey in greys], rel=2e-3
    )
    boxes = [[48, 16, 80, 48], [16, 48, 48, 80], [24, 24, 40, 40], [3.75, 3.75, 6.25, 6.25], [22.5, 7.5, 37.5, 22.5]]
    assert all_close([detections.boxes[0] for detections in found], boxes)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90), st.integers(0, 255)), min_size=1, max_size=11))
def test_batch_gives_same_answers_as_single_images(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int, int]]
) -> None:
    model = detector(
        write_brightness_detector(tmp_path_factory.mktemp("model") / "model.onnx", "batch", TensorProto.FLOAT)
    )
    inputs = [detection_input(uniform_image(*size), 0) for size in sizes]
    batched, single = model(inputs), [model([item])[0] for item in inputs]
    for batched_detections, single_detections in zip(batched, single, strict=True):
        assert batched_detections.scores.tolist() == pytest.approx(single_detections.scores.tolist(), abs=1e-6)
        assert batched_detections.boxes.tolist() == single_detections.boxes.tolist()


@pytest.mark.parametrize("layout", ["raw", "nms"])
@pytest.mark.parametrize("shape", [(1, 3, 64, 64), ("b", 64, 64, 3), ("b", 3, "h", "w")])
def test_float16_outputs_work_with_any_input_shape(tmp_path: Path, layout: str, shape: Any) -> None:
    output = graphs.raw(COLUMNS) if layout == "raw" else graphs.rows(ROWS)
    file = graphs.constant(
        tmp_path / "model.onnx",
        {"output0": output},
        shape=shape,
        properties=PROPERTIES,
        output_types={"output0": TensorProto.FLOAT16},
    )
    for found in detector(file)([detection_input(WIDE), detection_input(WIDE)]):
        assert found.labels == [label for label, _, _ in EXPECTED]
        assert found.scores == pytest.approx([score for _, score, _ in EXPECTED], abs=1e-3)
        assert all_close(found.boxes, [box for _, _, box in EXPECTED])
        assert (found.scores.dtype, found.boxes.dtype) == (np.float32, np.float32)


def test_class_number_beyond_integers_is_an_error_without_a_warning(tmp_path: Path) -> None:
    rows = graphs.rows([[12, 22, 20, 26, 0.9, 3e20]])
    file = graphs.constant(tmp_path / "model.onnx", {"output0": rows}, shape=SHAPE, properties=PROPERTIES)
    with pytest.raises(InferenceError, match="The model returned class number"):
        detector(file)([detection_input(WIDE)])
