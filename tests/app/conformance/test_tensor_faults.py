"""The protocols of tensors, and chariot-v2: ours keeps them, and planted faults are named."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.conformance.clause import Level, Verdict
from tests.app.conformance.engines import Spoil, engine, failed, held, held_spoilt

OURS = {
    "chariot-v2": ("classifier", "detector", "oriented-detector", "segmenter", "vlm"),
    "v2": ("classifier", "detector", "segmenter", "vlm", "half_plus_two", "greeter"),
    "v1": ("classifier", "detector", "vlm", "half_plus_two"),
    "tensorflow-serving": ("classifier", "detector", "vlm", "half_plus_two", "greeter"),
}


@pytest.mark.parametrize(("protocol", "model"), [(p, model) for p, models in OURS.items() for model in models])
def test_ours_conforms(protocol: str, model: str) -> None:
    with engine(model, protocol) as client:
        report = held(client, protocol, model=model)
    assert failed(report) == {}
    assert report.counted(Verdict.NOT_TESTED, Level.MUST) <= 3


def answers(change: Callable[[Any], object], path: str = "") -> Spoil:
    """A fault in every answer of status 200 on a path with `path` in it."""

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and path in request.url.path:
            change(answer)
        return status, answer

    return spoil


def outputs(change: Callable[[dict[str, Any]], object]) -> Spoil:
    def change_all(answer: dict[str, Any]) -> None:
        for output in answer["outputs"]:
            change(output)

    return answers(change_all, "/infer")


def detailed(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """FastAPI's refusals, which Triton's client cannot read."""
    return (status, {"detail": "no"}) if status >= 400 else (status, answer)


def blaming_itself(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (500, answer) if request.content.endswith(b"[") else (status, answer)


def forgiving(word: bytes) -> Spoil:
    return lambda request, status, answer: (200, {"outputs": []}) if word in request.content else (status, answer)


def strings(answer: Any) -> None:
    for spec in answer.get("outputs", ()):
        if "data" not in spec and spec["datatype"] == "BYTES":
            spec["datatype"] = "STRING"


def as_text(output: Any) -> None:
    output["data"] = [str(each) for each in output["data"]] if "data" in output else []


def first_only(answer: Any) -> None:
    answer["predictions"] = answer["predictions"][:1]


def nested(answer: Any) -> None:
    if "output" in answer:
        answer["output"] = [answer["output"]]


def scores_of_text(answer: Any) -> None:
    for item in answer.get("output", ()):
        item["score"] = str(item["score"])


def no_extensions(answer: Any) -> None:
    if "extensions" in answer:
        answer["extensions"] = None


def only_error(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (status, {"error": "no"}) if status == 400 else (status, answer)


FAULTS: dict[str, tuple[str, str, str, Spoil]] = {
    "no extensions": ("v2", "half_plus_two", "V2-001", answers(no_extensions)),
    "not live": ("v2", "half_plus_two", "V2-002", lambda r, s, a: (400, a) if r.url.path.endswith("live") else (s, a)),
    "ready without a word": ("v2", "half_plus_two", "V2-004", answers(lambda a: a.clear(), "/health/")),
    "platform": ("v2", "half_plus_two", "V2-006", answers(lambda a: a.pop("platform", 0))),
    "datatype STRING": (
        "v2",
        "detector",
        "V2-007",
        answers(strings),
    ),
    "an undeclared output": ("v2", "half_plus_two", "V2-010", outputs(lambda o: o.update(name="other"))),
    "another datatype": ("v2", "half_plus_two", "V2-011", outputs(lambda o: o.update(datatype="FP64"))),
    "too few elements": ("v2", "half_plus_two", "V2-013", outputs(lambda o: o["data"].pop() if "data" in o else 0)),
    "numbers as text": ("v2", "half_plus_two", "V2-014", outputs(as_text)),
    "no id": ("v2", "half_plus_two", "V2-015", answers(lambda a: a.pop("id", 0), "/infer")),
    "another model": ("v2", "half_plus_two", "V2-016", answers(lambda a: a.update(model_name="x"), "/infer")),
    "refusals with detail": ("v2", "half_plus_two", "V2-020", detailed),
    "bad JSON, 500": ("v2", "half_plus_two", "V2-022", blaming_itself),
    "any datatype": ("v2", "half_plus_two", "V2-024", forgiving(b"CONFORM")),
    "not alive": ("v1", "half_plus_two", "V1-001", answers(lambda a: a.pop("status", 0))),
    "never ready": ("v1", "half_plus_two", "V1-003", answers(lambda a: a.update(ready=False) if "ready" in a else 0)),
    "one prediction": ("v1", "half_plus_two", "V1-006", answers(first_only, ":predict")),
    "backwards": ("v1", "half_plus_two", "V1-007", answers(lambda a: a["predictions"].reverse(), ":predict")),
    "V1 with detail": ("v1", "half_plus_two", "V1-013", detailed),
    "V1 blames itself": ("v1", "half_plus_two", "V1-010", blaming_itself),
    "version of number": (
        "tensorflow-serving",
        "half_plus_two",
        "TFS-001",
        answers(lambda a: [e.update(version=int(e["version"])) for e in a.get("model_version_status", ())]),
    ),
    "signature_def once": (
        "tensorflow-serving",
        "half_plus_two",
        "TFS-004",
        answers(lambda a: a["metadata"].update(a["metadata"]["signature_def"]), "/metadata"),
    ),
    "predictions for columns": (
        "tensorflow-serving",
        "half_plus_two",
        "TFS-007",
        answers(lambda a: a.update(predictions=a.pop("outputs")) if "outputs" in a else 0),
    ),
    "columns backwards": (
        "tensorflow-serving",
        "detector",
        "TFS-008",
        answers(lambda a: a["outputs"].popitem() if "outputs" in a else 0),
    ),
    "TFS blames itself": ("tensorflow-serving", "half_plus_two", "TFS-013", blaming_itself),
    "TFS with detail": ("tensorflow-serving", "half_plus_two", "TFS-019", detailed),
    "items in a list": ("chariot-v2", "detector", "CV2-003", answers(nested)),
    "an error for text": ("chariot-v2", "detector", "CV2-012", only_error),
    "a score of text": ("chariot-v2", "detector", "CV2-I03", answers(scores_of_text)),
}  # fmt: skip
"""What is broken: the protocol, the model it is broken with, the clause that names it, and how."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault: str) -> None:
    protocol, model, clause, spoil = FAULTS[fault]
    with engine(model, protocol) as client:
        named = list(failed(held_spoilt(client, spoil, protocol, model=model)))
    assert named == [clause]
