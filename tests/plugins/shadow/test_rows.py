"""What a shadow version gets, and shadow answers in stores of both kinds."""

from pathlib import Path

import numpy as np
import pytest

from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import Store, parse_dsn
from app.plugins.shadow.rows import ShadowAnswer, ShadowWriter, read_compared
from app.plugins.shadow.service import with_pixels
from tasks.image_classification import Classification
from tasks.inference.request import InferenceRequest
from tasks.inference.response import SampleResult
from tasks.inference.tensor import BytesTensor, Tensor
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tasks.vision.request import ImageItem
from tests.support.data.recorded_rows import recorded_inference


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


def _open(url: str, *names: str) -> Store:
    """Return a store with these inferences, each a microsecond younger."""
    store = store_at(parse_dsn(url))
    store.open()
    store.write([to_rows(recorded_inference(name, model="m", started=number)) for number, name in enumerate(names)])
    return store


def _answer(version: str = "2") -> ShadowAnswer:
    return ShadowAnswer(version=version, agreed=True, records=[{"label": '{"version":"3",'}])


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_answers_of_recorded_inferences_are_read_newest_first(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(tmp_path / "a.db") if kind == "sqlite" else request.getfixturevalue("postgres").empty_database()
    writer = ShadowWriter(_open(url, "1-0-0", "2-0-0", "3-0-0", "4-0-0"))
    reader = RecordingReader(parse_dsn(url))
    assert read_compared(reader) == []
    for name, version in (("1-0-0", "2"), ("none-0-0", "2"), ("3-0-0", "2"), ("4-0-0", "3")):
        writer.add(name, _answer(version))
    writer.close()

    def names(*choice: str, limit: int | None = None) -> list[str]:
        return [one.inference.id for one in read_compared(reader, *choice, limit=limit)]

    assert names() == ["4-0-0", "3-0-0", "1-0-0"]
    assert names("m", "2") == ["3-0-0", "1-0-0"]
    assert names(limit=1) == ["4-0-0"]
    assert names("other") == []
    assert read_compared(reader)[0].answer == _answer("3")


def test_answer_waits_until_its_inference_is_recorded(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    store = _open(url)
    writer = ShadowWriter(store)
    writer.add("1-0-0", _answer())
    writer.flush()
    store.write([to_rows(recorded_inference("1-0-0"))])
    writer.flush()
    assert len(read_compared(RecordingReader(parse_dsn(url)))) == 1
    writer.close()


def test_answers_that_cannot_be_written_are_dropped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "absent"
    url = str(folder / "store.db")
    writer = ShadowWriter(store_at(parse_dsn(url)))
    writer.add("1-0-0", _answer())
    writer.flush()
    assert "1 shadow answers could not be recorded" in caplog.text
    folder.mkdir()
    _open(url, "1-0-0", "2-0-0").close()
    writer.add("2-0-0", _answer())
    writer.close()
    assert [one.inference.id for one in read_compared(RecordingReader(parse_dsn(url)))] == ["2-0-0"]
