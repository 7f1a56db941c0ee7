"""Truths in stores of both kinds and over HTTP: revisions, verdicts, and the inferences that labels belong to."""

import gzip
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.server.http.errors import create_error_handlers
from app.plugins.feedback.truths.gauges import count_verdicts
from app.plugins.feedback.truths.matching import MAX_BYTES
from app.plugins.feedback.truths.right_answer import RightAnswer, make_truth, records_by_kind
from app.plugins.feedback.truths.routes import Truths, add_lines
from app.plugins.feedback.truths.truth_store import TruthStore
from app.plugins.recording.inference import RecordedInference, Truth
from app.plugins.recording.row_converter import REDACTED, Redaction
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import Store, parse_dsn
from tasks.inference.error import InferenceError
from tests.plugins.feedback.truths.recorded import CAR, DOG, PART, SHIP, detection, found
from tests.plugins.recording.contents import contents
from tests.support.data.recorded_rows import write_store

CLASSES = [{"label": "cat", "score": 0.9}, {"label": "dog", "score": 0.1}]
RECORDED = [
    detection("a", CAR),
    detection("b", CAR, DOG),
    detection("again", CAR, digest="d" * 64),
    detection("twice", CAR, digest="d" * 64),
    detection("class", records=CLASSES, task_type="IMAGE_CLASSIFICATION"),
    detection("failed", records=None, error="model_failed", task_type=""),
]


@pytest.fixture
def truths(store: Store, url: str) -> Iterator[TruthStore]:
    store.write([to_rows(inference) for inference in RECORDED])
    truths = TruthStore(parse_dsn(url))
    yield truths
    truths.close()


def test_corrections_are_revisions_and_the_same_truth_again_is_not(truths: TruthStore, url: str) -> None:
    first = truths.put("a-0-0", RightAnswer(records=found(CAR)), "ann")
    assert first == Truth(verdict="right", records=[CAR], complete=True, source="api", author="ann", time=first.time)
    assert truths.put("a-0-0", RightAnswer(records=[CAR]), "bob") == first
    assert truths.put("a-0-0", RightAnswer(records=[CAR, DOG]), "bob").verdict == "wrong"
    truths.put("a-0-0", RightAnswer(verdict="right"), "bob")
    assert truths.get("a-0-0").revision == 3
    truths.withdraw("a-0-0")
    with pytest.raises(InferenceError, match="The inference 'a-0-0' has no truth"):
        truths.get("a-0-0")
    rows = [(row["revision"], row["verdict"], bool(row["current"])) for row in contents(url, "inference_truths")]
    assert rows == [(1, "right", False), (2, "wrong", False), (3, "right", False)]
    assert truths.put("a-0-0", RightAnswer(verdict="right"), "bob").revision == 4


def test_concurrent_writers_number_their_revisions(truths: TruthStore, url: str) -> None:
    def write(author: str) -> None:
        with closing(TruthStore(parse_dsn(url))) as writer:
            for number in range(5):
                writer.put("b-0-0", RightAnswer(verdict="wrong", comment=f"{author} {number}"), author)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, ["a", "b", "c"]))
    rows = contents(url, "inference_truths")
    assert [row["revision"] for row in rows] == list(range(1, 16))
    assert [row["revision"] for row in rows if row["current"]] == [15]


def test_each_line_finds_its_inference_or_says_why_not(truths: TruthStore) -> None:
    lines = b"""
        {"id": "a-0-0", "records": [{"label": "car", "xmin": 10, "ymin": 10, "xmax": 30, "ymax": 30}]}
        {"request_id": "r-b", "verdict": "wrong"}
        {"digest": "%s", "verdict": "right"}
        {"id": "gone", "metadata": {"file_name": "class.jpg"}, "records": [{"label": "cat"}]}
        {"metadata": {"file_name": "a.jpg"}, "records": [{"label": "cat"}]}
        {"id": "gone", "verdict": "right"}
        {"id": "a-0-0", "verdict": "perhaps"}
        {"verdict": "right"}
        {"id": "failed-0-0", "verdict": "right"}
    """ % (b"d" * 64)
    outcomes = add_lines(truths, lines, "ann").results
    assert [(outcome.result, *outcome.ids) for outcome in outcomes] == [
        ("matched", "a-0-0"), ("matched", "b-0-0"), ("ambiguous", "twice-0-0", "again-0-0"), ("matched", "class-0-0"),
        ("unknown",), ("unknown",), ("invalid",), ("invalid",), ("unknown",),
    ]  # fmt: skip
    assert "verdict" in outcomes[6].error
    assert outcomes[7].error == 'Expected id, request_id, digest or metadata {"file_name": ...}'
    assert truths.get("class-0-0").verdict == "right"
    spread = add_lines(truths, b'{"digest": "%s", "verdict": "right"}' % (b"d" * 64), "", spread=True)
    assert (spread.matched, [truths.get(name).verdict for name in spread.results[0].ids]) == (1, ["right", "right"])


def test_missing_file_is_not_created(tmp_path: Path) -> None:
    missing = TruthStore(parse_dsn(str(tmp_path / "mistyped.db")))
    with closing(missing), pytest.raises(InferenceError, match=r"There are no recordings at .*mistyped\.db"):
        add_lines(missing, b'{"id": "a-0-0", "verdict": "right"}', "")
    assert list(tmp_path.iterdir()) == []


def test_line_with_a_zero_character_does_not_affect_others(truths: TruthStore) -> None:
    lines = b"""
        {"id": "a-0-0", "verdict": "right"}
        {"id": "a\\u0000", "verdict": "right"}
        {"metadata": {"file_name": "\\u0000.jpg"}, "verdict": "right"}
    """
    outcomes = add_lines(truths, lines, "ann").results
    assert [outcome.result for outcome in outcomes] == ["matched", "invalid", "invalid"]
    assert "file_name: Expected text without zero characters" in outcomes[2].error


def test_spread_label_with_the_id_of_one_inference_reaches_all_of_its_image(truths: TruthStore) -> None:
    line = b'{"id": "again-0-0", "records": [{"label": "car", "xmin": 10, "ymin": 10, "xmax": 30, "ymax": 30}]}'
    (outcome,) = add_lines(truths, line, "", spread=True).results
    assert set(outcome.ids) == {"again-0-0", "twice-0-0"}
    (verdict,) = add_lines(truths, b'{"id": "again-0-0", "verdict": "wrong"}', "", spread=True).results
    assert verdict.ids == ["again-0-0"]


def test_digest_in_capitals_finds_its_inference(truths: TruthStore) -> None:
    line = b'{"digest": "%s", "verdict": "right"}' % (b"D" * 64)
    assert add_lines(truths, line, "", spread=True).results[0].result == "matched"


def test_redacted_keys_of_truths_are_not_stored(store: Store, url: str) -> None:
    store.write([to_rows(detection("a", CAR))])
    with closing(TruthStore(parse_dsn(url), Redaction(["plate"]))) as truths:
        truths.put("a-0-0", RightAnswer(records=[{**CAR, "plate": "M-AB 1"}]), "")
        assert truths.get("a-0-0").records == [{**CAR, "plate": REDACTED}]


def test_gauges_count_verdicts_of_the_random_sample(store: Store, url: str) -> None:
    right, wrong = Truth(verdict="right"), Truth(verdict="wrong")
    others = detection("c", truth=wrong, reason="unsure"), detection("d"), detection("e", truth=wrong, version="2")
    store.write([to_rows(row) for row in (detection("a", truth=right), detection("b", truth=wrong), *others)])
    with closing(TruthStore(parse_dsn(url))) as truths:
        counts = truths.run(count_verdicts)
    assert counts == {("detector", "1"): {"right": 1, "wrong": 1}, ("detector", "2"): {"wrong": 1}}


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
        ("TEXT_CLASSIFICATION", [{"label": "a", "score": 0.6}], [{"label": "a"}], "right"),
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
        ("OBJECT_DETECTION", {"records": [{**CAR, "xmin": "a"}]}, "records: xmin: Expected a finite number"),
        ("OBJECT_DETECTION", {"records": [{**CAR, "label": 1}]}, "records: label: Expected a text"),
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
    return make_truth(inference, answer, next(iter(records_by_kind(answer).values()), None), "", 0)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    truths = Truths(TruthStore(parse_dsn(write_store(tmp_path / "store.db", detection("a", CAR)))))
    options: Any = {"exception_handlers": create_error_handlers(), "openapi_config": None, "logging_config": None}
    with TestClient(Litestar(truths.handlers, on_shutdown=[lambda: truths.close(1)], **options)) as client:
        yield client


def test_truth_is_stored_shown_and_withdrawn(client: TestClient[Litestar]) -> None:
    path = "/inferences/a-0-0/truth"
    assert client.get(path).status_code == 404
    stored = client.put(path, json={"records": [CAR], "source": "me"})
    assert (stored.status_code, stored.json()["verdict"], stored.json()["revision"]) == (200, "right", 1)
    assert client.get(path).json() == stored.json()
    assert client.put(path, json={"verdict": "wrong"}).json()["revision"] == 2
    assert client.delete(path).json() == {}
    assert client.get(path).json() == {"error": "The inference 'a-0-0' has no truth"}


def test_lines_have_one_result_each(client: TestClient[Litestar]) -> None:
    lines = '{"id": "a-0-0", "verdict": "right"}\n\n{"id": "x", "verdict": "right"}\n'
    headers = {"content-encoding": "gzip"}
    answer = client.post("/inferences/truths", content=gzip.compress(lines.encode()), headers=headers).json()
    assert answer == {"matched": 1, "results": [{"result": "matched", "ids": ["a-0-0"]}, {"result": "unknown"}]}


ONE, MANY = "/inferences/a-0-0/truth", "/inferences/truths"


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
        ("PUT", ONE, {"verdict": "right", "comment": "x" * MAX_BYTES}, 413, "bytes in a body"),
        ("POST", MANY, b"", 400, 'body: Expected JSON lines such as {"id"'),
        ("POST", MANY, b"{}\n" * 1001, 413, "1,000 lines"),
        ("POST", f"{MANY}?spread=yes", b"", 400, "spread: Expected true or false, got 'yes'"),
        ("POST", f"{MANY}?Spread=true", b"", 400, "'Spread': Expected spread, the only parameter"),
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
    one, many = "/inferences/{id:str}/truth", "/inferences/truths"
    needed = {("GET", one): "read", ("PUT", one): "label", ("DELETE", one): "label", ("POST", many): "label"}
    for handler in truths.handlers:
        for path, method in itertools.product(handler.paths, handler.http_methods):
            assert handler.opt["permission"] == needed[method, path]
    assert {(item.method, item.path): item.permission for item in truths.operations} == needed
    truths.close(1)
