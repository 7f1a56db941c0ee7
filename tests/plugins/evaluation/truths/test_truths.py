"""Truths in stores of both kinds and over HTTP: verdicts, and the inferences that labels belong to."""

import gzip
import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.server.http.errors import create_error_handlers
from app.plugins.evaluation.truths.judging import judge, make_truth, records_by_kind
from app.plugins.evaluation.truths.matching import ImportedLabel, LabelOutcome, add_labels, read_line
from app.plugins.recording.inference import RecordedInference, Truth
from app.plugins.recording.row_converter import REDACTED, Redaction
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import Store, parse_dsn
from app.plugins.recording.truth_routes import Truths
from app.plugins.recording.truth_store import RightAnswer, TruthStore
from tasks.inference.error import InferenceError
from tests.plugins.evaluation.truths.recorded import CAR, DOG, PART, SHIP, detection, found
from tests.support.data.recorded_rows import write_store

CLASSES = [{"label": "cat", "score": 0.9}, {"label": "dog", "score": 0.1}]
RECORDED = [
    detection("a", CAR),
    detection("b", CAR, DOG),
    detection("again", CAR, digest="d" * 64),
    detection("twice", CAR, digest="d" * 64),
    detection("one", CAR, request_id="shared"),
    detection("two", CAR, request_id="shared"),
    detection("class", records=CLASSES, task_type="IMAGE_CLASSIFICATION"),
    detection("failed", records=None, error="model_failed", task_type=""),
]


@pytest.fixture
def truths(store: Store, url: str) -> Iterator[TruthStore]:
    store.write([to_rows(inference) for inference in RECORDED])
    truths = TruthStore(parse_dsn(url))
    yield truths
    truths.close()


def test_truth_is_replaced_and_withdrawn(truths: TruthStore) -> None:
    first = truths.put("a-0-0", RightAnswer(records=found(CAR)), [judge])
    assert first == Truth(verdict="right", records=[CAR], complete=True, source="api", time=first.time)
    assert truths.put("a-0-0", RightAnswer(records=[CAR, DOG]), [judge]).verdict == "wrong"
    truths.put("a-0-0", RightAnswer(verdict="right", comment="\0 ß"))
    assert (truths.get("a-0-0").records, truths.get("a-0-0").comment) == (None, "\0 ß")
    truths.withdraw("a-0-0")
    with pytest.raises(InferenceError, match="The inference 'a-0-0' has no truth"):
        truths.get("a-0-0")


def add_lines(truths: TruthStore, lines: bytes) -> list[LabelOutcome]:
    labels: list[ImportedLabel] = [read_line(line) for line in lines.split(b"\n") if line.strip()]
    return [*add_labels(truths, labels)]


def test_each_line_finds_its_inference_or_says_why_not(truths: TruthStore) -> None:
    lines = b"""
        {"id": "a-0-0", "records": [{"label": "car", "xmin": 10, "ymin": 10, "xmax": 30, "ymax": 30}]}
        {"request_id": "r-b", "verdict": "wrong"}
        {"digest": "%s", "verdict": "right"}
        {"request_id": "shared", "verdict": "right"}
        {"id": "gone", "metadata": {"file_name": "class.jpg"}, "records": [{"label": "cat"}]}
        {"metadata": {"file_name": "a.jpg"}, "records": [{"label": "cat"}]}
        {"id": "gone", "verdict": "right"}
        {"id": "failed-0-0", "verdict": "right"}
    """ % (b"D" * 64)
    outcomes = add_lines(truths, lines)
    assert [(outcome.result, *outcome.ids) for outcome in outcomes] == [
        ("matched", "a-0-0"), ("matched", "b-0-0"), ("matched", "twice-0-0", "again-0-0"),
        ("ambiguous", "two-0-0", "one-0-0"), ("matched", "class-0-0"), ("unknown",), ("unknown",), ("unknown",),
    ]  # fmt: skip
    assert [truths.get(name).verdict for name in ("class-0-0", "again-0-0", "twice-0-0")] == ["right"] * 3


def test_many_names_are_found_as_few_are(truths: TruthStore) -> None:
    lines = [b'{"metadata": {"file_name": "%s.jpg"}, "verdict": "wrong"}' % name for name in (b"a", b"b")]
    others = [b'{"metadata": {"file_name": "none%d.jpg"}, "verdict": "wrong"}' % number for number in range(20)]
    for content in (lines, [*others, *lines]):
        assert [outcome.ids for outcome in add_lines(truths, b"\n".join(content))][-2:] == [["a-0-0"], ["b-0-0"]]


def test_missing_file_is_not_created(tmp_path: Path) -> None:
    missing = TruthStore(parse_dsn(str(tmp_path / "mistyped.db")))
    with closing(missing), pytest.raises(InferenceError, match=r"There are no recordings at .*mistyped\.db"):
        add_lines(missing, b'{"id": "a-0-0", "verdict": "right"}')
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": "a", "verdict": "perhaps"}', "verdict"),
        (b'{"verdict": "right"}', 'Expected id, request_id, digest or metadata {"file_name": ...}'),
        (b'{"metadata": {"file_name": "\\u0000.jpg"}, "verdict": "right"}', "file_name: Expected text without zero"),
    ],
)
def test_line_that_cannot_be_used_names_the_field(line: bytes, message: str) -> None:
    with pytest.raises(InferenceError) as raised:
        read_line(line)
    assert message in str(raised.value)


def test_redacted_keys_of_truths_are_not_stored(store: Store, url: str) -> None:
    store.write([to_rows(detection("a", CAR))])
    with closing(TruthStore(parse_dsn(url), Redaction(["plate"]))) as truths:
        truths.put("a-0-0", RightAnswer(records=[{**CAR, "plate": "M-AB 1"}]), [judge])
        assert truths.get("a-0-0").records == [{**CAR, "plate": REDACTED}]


@pytest.mark.parametrize(
    ("task", "answer", "right", "verdict"),
    [
        ("OBJECT_DETECTION", found(CAR), [CAR], "right"),
        ("OBJECT_DETECTION", found(CAR), [{**CAR, "xmax": 51.0}], "wrong"),
        ("OBJECT_DETECTION", found(CAR), [{**CAR, "label": "dog"}], "wrong"),
        ("OBJECT_DETECTION", found(CAR, DOG), [CAR], "wrong"),
        ("OBJECT_DETECTION", [], [], "right"),
        ("OBJECT_DETECTION", found(CAR), [], "wrong"),
        ("ORIENTED_OBJECT_DETECTION", found(SHIP), [SHIP], "right"),
        ("ORIENTED_OBJECT_DETECTION", found(SHIP), [{**SHIP, "r": 1.9}], "wrong"),
        ("IMAGE_SEGMENTATION", found(PART), [PART], "right"),
        ("IMAGE_CLASSIFICATION", [{"label": "a", "score": 1}, {"label": "b", "score": 0}], [{"label": "b"}], "wrong"),
        ("IMAGE_CLASSIFICATION", [{"label": "a", "score": 0.6}], [{"label": "a"}], "right"),
        ("IMAGE_TEXT_TO_TEXT", [{"prompt": "", "answer": "The cat."}], [{"answer": "a"}, {"answer": "cat"}], "right"),
    ],
)  # fmt: skip
def test_verdict_follows_from_the_right_records(task: str, answer: Any, right: Any, verdict: str) -> None:
    inference = detection("a", records=answer, task_type=task)
    assert truth_of(inference, records=right).verdict == verdict


def test_missing_objects_of_an_incomplete_truth_are_not_extra() -> None:
    inference = detection("a", CAR, DOG)
    assert truth_of(inference, records=[CAR], complete=False).verdict == "right"
    assert truth_of(inference, records=[{**CAR, "xmin": 29.0}], complete=False).verdict == "wrong"


@pytest.mark.parametrize(
    ("task", "answer", "message"),
    [
        ("OBJECT_DETECTION", {}, "Expected either records or a verdict"),
        ("OBJECT_DETECTION", {"verdict": "right", "records": [CAR]}, "Expected either records or a verdict"),
        ("OBJECT_DETECTION", {"records": [{"name": "car"}]}, "records: Expected answers of"),
        ("OBJECT_DETECTION", {"records": [{**CAR, "xmin": "a"}]}, "records: xmin: Expected `float`, got `str`"),
        ("OBJECT_DETECTION", {"records": [{**CAR, "label": 1}]}, "records: label: Expected `str`"),
        ("OBJECT_DETECTION", {"records": [], "complete": False}, "records: Expected at least one object"),
        ("OBJECT_DETECTION", {"records": [{**CAR, "size": 1e200}]}, "Expected a number within"),
        ("IMAGE_CLASSIFICATION", {"records": [{"label": "a"}] * 2}, "Expected one record with the right label, got 2"),
    ],
)
def test_answer_that_cannot_be_right_is_rejected(task: str, answer: dict[str, Any], message: str) -> None:
    records = [] if task == "OBJECT_DETECTION" else [{"label": "a", "score": 1.0}]
    inference = detection("a", records=records, task_type=task)
    with pytest.raises(InferenceError) as raised:
        truth_of(inference, **answer)
    assert message in str(raised.value)


def truth_of(inference: RecordedInference, **fields: Any) -> Truth:
    answer = RightAnswer(**fields)
    return make_truth(inference, answer, next(iter(records_by_kind(answer).values()), None))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    truths = Truths(TruthStore(parse_dsn(write_store(tmp_path / "store.db", detection("a", CAR)))), lambda: [judge])
    options: Any = {"exception_handlers": create_error_handlers(), "openapi_config": None, "logging_config": None}
    with TestClient(Litestar(truths.handlers, on_shutdown=[lambda: truths.close(1)], **options)) as client:
        yield client


def test_truth_is_stored_shown_and_withdrawn(client: TestClient[Litestar]) -> None:
    path = "/inferences/a-0-0/truth"
    assert client.get(path).status_code == 404
    body = gzip.compress(json.dumps({"records": [CAR], "source": "me"}).encode())
    stored = client.put(path, content=body, headers={"content-encoding": "gzip"})
    assert (stored.status_code, stored.json()["verdict"], stored.json()["source"]) == (200, "right", "me")
    assert client.get(path).json() == stored.json()
    assert client.put(path, json={"verdict": "wrong"}).json()["verdict"] == "wrong"
    assert client.delete(path).json() == {}
    assert client.get(path).json() == {"error": "The inference 'a-0-0' has no truth"}


ONE = "/inferences/a-0-0/truth"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("PUT", "/inferences/x/truth", {"verdict": "right"}, 404, "There is no inference 'x'"),
        ("DELETE", "/inferences/x/truth", b"", 404, "There is no inference 'x'"),
        ("PUT", ONE, {"verdict": "maybe"}, 400, "verdict"),
        ("PUT", ONE, {"verdicts": "right"}, 400, "verdicts"),
        ("PUT", ONE, {"records": [{"label": "cat"}]}, 400, "Expected records of OBJECT"),
        ("PUT", ONE, {"records": [{"label": "a"}] * 10_001}, 400, "10000"),
        ("PUT", ONE, {"records": [{**CAR, "xmax": 1}]}, 400, "records: Expected boxes with xmin"),
        ("PUT", ONE, {"verdict": "right", "comment": "x" * 1_000_000}, 413, "bytes in a body"),
    ],
)
def test_invalid_request_names_the_field(
    client: TestClient[Litestar], method: str, path: str, body: object, status: int, message: str
) -> None:
    response = client.request(method, path, content=body if isinstance(body, bytes) else json.dumps(body).encode())
    assert response.status_code == status
    assert message in response.json()["error"]


def test_writing_needs_the_permission_label(tmp_path: Path) -> None:
    truths = Truths(TruthStore(parse_dsn(str(tmp_path / "store.db"))))
    path = "/inferences/{id:str}/truth"
    needed = {("GET", path): "read", ("PUT", path): "label", ("DELETE", path): "label"}
    for handler in truths.handlers:
        for path, method in itertools.product(handler.paths, handler.http_methods):
            assert handler.opt["permission"] == needed[method, path]
    assert {(item.method, item.path): item.permission for item in truths.operations} == needed
    truths.close(1)
