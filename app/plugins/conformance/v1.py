"""Check KServe's V1 protocol."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from app.clients import kserve_v1
from app.plugins.conformance.check import MUST, SHOULD, Check, expect, expect_same
from app.plugins.conformance.exchange import Exchange, InconclusiveError, ViolationError
from app.plugins.conformance.model_names import model_in_path, model_name
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import SAMPLE_IMAGES
from app.plugins.conformance.tensors import UNKNOWN, expect_error_texts, expect_form, expect_statuses, is_list

_UNKNOWN_PATH = f"/v1/models/{UNKNOWN}"


def _predict_path(probe: Probe) -> str:
    return kserve_v1.predict_path(model_in_path(probe, "/v1/models"))


def _predict(probe: Probe, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Exchange:
    """Send a predict request to the checked model.

    Fields of the user's request other than instances and inputs are sent too, because the model may need them.
    """
    given = probe.target.request or {}
    others = {name: value for name, value in given.items() if name not in ("instances", "inputs")}
    return probe.post_json(_predict_path(probe), {**others, **body}, headers)


def _predictions_of(answer: dict[str, Any]) -> list[object]:
    """Return the predictions of a response. Raise ViolationError if `predictions` is not an array."""
    predictions: Any = answer.get("predictions")
    expect(is_list(predictions), "an array of predictions", predictions)
    return predictions


def _instances(probe: Probe) -> list[object]:
    """Return two instances that the engine accepts: the given ones, or images in one of the common forms."""
    given = (probe.target.request or {}).get("instances")
    if is_list(given) and given:
        instances = [given[0], given[-1]]
        _predict(probe, {"instances": instances}).expect_accepted()
        return instances
    images = [base64.b64encode(image.data).decode() for image in SAMPLE_IMAGES[:2]]
    candidates: Sequence[list[object]] = (
        [{"b64": image} for image in images],
        [{"image": {"b64": image}} for image in images],
        [{"image_bytes": {"b64": image}} for image in images],
        [*images],
        [1.0, 2.0],
        [[1.0], [2.0]],
    )
    for candidate in candidates:
        if _predict(probe, {"instances": candidate}).ok:
            return candidate
    raise InconclusiveError("The engine rejects every generated instance; give a body with --request")


def _predictions(probe: Probe, instances: list[object]) -> list[object]:
    return _predictions_of(_predict(probe, {"instances": instances}).expect_object())


def _one_for_each(probe: Probe) -> None:
    instances = _instances(probe)
    for batch in (instances, instances[:1]):
        expect(len(got := _predictions(probe, batch)) == len(batch), f"{len(batch)} predictions", got)


def _ready(probe: Probe) -> None:
    got = probe.get(f"/v1/models/{model_in_path(probe, '/v1/models')}").expect_object()
    is_ready = got.get("name") == model_name(probe, "/v1/models") and got.get("ready") is True
    expect(is_ready, "the model's name and ready", got)


def _in_order(probe: Probe) -> None:
    instances = _instances(probe)
    first_prediction, second_prediction = (_predictions(probe, [instance]) for instance in instances)
    if first_prediction == second_prediction:
        raise InconclusiveError("Both instances have the same prediction")
    together = _predictions(probe, instances)
    if together == [*second_prediction, *first_prediction]:
        raise ViolationError("Expected the predictions in the order of the instances, got the reverse order")


def _cloud_event(probe: Probe) -> None:
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "conform-1",
        "ce-source": "conform",
        "ce-type": "org.kubeflow.serving.inference.request",
    }
    answer = _predict(probe, {"instances": _instances(probe)}, headers=headers)
    answer.expect_object()
    if "ce-id" not in answer.headers or "ce-type" not in answer.headers:
        raise ViolationError("Expected an event with ce-id and ce-type, got an answer without them")


_SDK = "KServe's SDK server"
_PAGE = "KServe, V1 protocol"
_PREDICTS = ("V1-005",)

CHECKS = (
    Check("V1-001", SHOULD, 'GET / returns {"status": "alive"}.', f"{_SDK}; its client reads it",
          lambda probe: expect_same(
              probe.get("/", accept="application/json").expect_object().get("status"), "alive")),
    Check("V1-002", MUST, "GET /v1/models lists the names of models.", f"{_PAGE}, List Models",
          lambda probe: expect_form(
              probe.get("/v1/models").expect_object().get("models"), list[str], "an array of names in models")),
    Check("V1-003", MUST, "GET /v1/models/<model> returns name and ready.", f"{_PAGE}, Model Ready", _ready),
    Check("V1-004", MUST, "An unknown model is answered with 404.", f"{_SDK}, TF Serving",
          lambda probe: expect_statuses(
              [probe.get(_UNKNOWN_PATH), probe.post_json(f"{_UNKNOWN_PATH}:predict", {"instances": [1]})], 404)),
    Check("V1-005", MUST, "POST /v1/models/<model>:predict returns predictions for instances.", f"{_PAGE}, Predict",
          lambda probe: _predictions(probe, _instances(probe))),
    Check("V1-006", MUST, "There is one prediction for each instance.", f"{_PAGE}, Predict",
          _one_for_each, requires=_PREDICTS),
    Check("V1-007", MUST, "Predictions are in the order of the instances.", f"{_PAGE}, Predict", _in_order,
          requires=("V1-006",)),
    Check("V1-008", SHOULD, "inputs is another name for instances.", f"{_SDK}; not so in TF Serving",
          lambda probe: _predictions_of(_predict(probe, {"inputs": _instances(probe)}).expect_object()),
          requires=_PREDICTS),
    Check("V1-009", MUST, "The response's Content-Type is application/json.", _SDK,
          lambda probe: _predict(probe, {"instances": _instances(probe)}).expect_json(), requires=_PREDICTS),
    Check("V1-010", MUST, "Invalid JSON is answered with 400.", f"{_SDK}: Unrecognized request format",
          lambda probe: probe.post(_predict_path(probe), b'{"instances": [').expect_status(400)),
    Check("V1-011", SHOULD, "A body without instances is rejected with 4xx.", f"{_PAGE}; the stock server returns 500",
          lambda probe: _predict(probe, {"conform": []}).expect_error()),
    Check("V1-012", SHOULD, "Instances that are not a list are rejected with 4xx.", f"{_SDK}, with a predictor",
          lambda probe: _predict(probe, {"instances": 1}).expect_error()),
    Check("V1-013", MUST, "Rejections are JSON objects with a text in error.", _SDK,
          lambda probe: expect_error_texts(probe.get(_UNKNOWN_PATH), _predict(probe, {"instances": 1}))),
    Check("V1-014", SHOULD, "A CloudEvent in ce- headers is answered with one.", f"{_SDK}, CloudEvents", _cloud_event,
          requires=_PREDICTS),
)  # fmt: skip
