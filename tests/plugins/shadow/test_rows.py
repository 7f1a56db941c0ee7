"""What a shadow version gets, and rows of shadow answers in stores of both kinds."""

import time
from pathlib import Path

import numpy as np
import pytest

from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.shadow.job import with_pixels
from app.plugins.shadow.rows import ShadowRow, ShadowWriter, read_rows
from tasks.image_classification import Classification
from tasks.inference.request import InferenceRequest
from tasks.inference.response import SampleResult
from tasks.inference.tensor import BytesTensor, Tensor
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tasks.vision.request import ImageItem


def test_shadow_version_gets_the_decoded_pixels_of_inputs_with_one_image() -> None:
    pixels = np.zeros((1, 2, 3), np.uint8)
    full, reduced = (ImageItem(Image(pixels, full_size=size), SelectionParameters()) for size in (None, (2, 4)))
    nothing = Classification(labels=[], scores=np.zeros(0, np.float32))
    items = ((0, full), (1, full), (1, full), (2, reduced))
    samples = [SampleResult(input=number, index=0, item=item, prediction=nothing) for number, item in items]
    inputs = tuple(BytesTensor(name=name, shape=(1,), elements=(), parameters={"top_k": 1}) for name in "abc")
    first, *rest = with_pixels(InferenceRequest(id="a", model_name="m", inputs=inputs), samples).inputs
    assert isinstance(first, Tensor)
    assert (first.name, first.shape, first.parameters) == ("a", (1, 1, 2, 3), {"top_k": 1})
    assert rest == [*inputs[1:]]


def _row(number: int, seconds: float = 0.0, version: str = "2") -> ShadowRow:
    recorded = int((time.time() - seconds) * 1e6) + number
    return ShadowRow(id=f"{number}-0-0", version=version, model="m", champion="1", time=recorded, agreed=True)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_rows_are_read_newest_first_and_expire(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = str(tmp_path / "a.db") if kind == "sqlite" else request.getfixturevalue("postgres").empty_database()
    store = store_at(parse_dsn(url))
    store.open()
    reader, writer = RecordingReader(parse_dsn(url)), ShadowWriter(store, keep=60)
    assert read_rows(reader) == []
    for row in (_row(1), _row(2, seconds=120), _row(3), _row(4, version="3")):
        writer.add(row)
    writer.close()
    assert [row.id for row in read_rows(reader)] == ["4-0-0", "3-0-0", "1-0-0"]
    assert [row.id for row in read_rows(reader, "m", "2")] == ["3-0-0", "1-0-0"]
    assert [row.id for row in read_rows(reader, limit=1)] == ["4-0-0"]
    assert read_rows(reader, "other") == []


def test_rows_that_cannot_be_written_are_dropped_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "absent"
    writer = ShadowWriter(store_at(parse_dsn(str(folder / "store.db"))), keep=None)
    writer.add(_row(1))
    writer.flush()
    assert "1 shadow answers could not be recorded" in caplog.text
    folder.mkdir()
    writer.add(_row(2))
    writer.close()
    assert [row.id for row in read_rows(RecordingReader(parse_dsn(str(folder / "store.db"))))] == ["2-0-0"]
