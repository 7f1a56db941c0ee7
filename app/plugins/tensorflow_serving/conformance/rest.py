"""Check TensorFlow Serving's REST API."""

from typing import Any

import numpy as np

from app.plugins.conformance import instances as v1
from app.plugins.conformance.check import MUST, SHOULD, Check, NotApplicableError, expect
from app.plugins.conformance.client.exchange import InconclusiveError, quote
from app.plugins.conformance.client.probe import Probe
from app.plugins.conformance.tensors import (
    UNKNOWN,
    expect_error_texts,
    expect_statuses,
    flattened,
    has_fields,
    is_object,
)
from app.plugins.tensorflow_serving.conformance import messages as tfs

_STATES = ("UNKNOWN", "START", "LOADING", "AVAILABLE", "UNLOADING", "END")


def _instance(probe: Probe, image_index: int) -> object:
    """Return one row with a value for every input of the default signature, or the bare value of a single input."""
    row: dict[str, object] = {}
    for name, info in tfs.default_signature(probe)["inputs"].items():
        if info.get("dtype") in ("DT_HALF", "DT_BFLOAT16"):
            raise InconclusiveError(f"{name} is {info['dtype']}, which REST does not accept")
        shape, elements = tfs.generate(probe, name, info, first_dimension=1, image_index=image_index)
        row[name] = np.array(elements, object).reshape(shape).tolist()
    return next(iter(row.values())) if len(row) == 1 else row


def _instances(probe: Probe) -> list[object]:
    if (instances := v1.given_instances(probe)) is not None:
        return instances
    return [_instance(probe, 0), _instance(probe, 1)]


def _predictions(probe: Probe, instances: list[object]) -> list[object]:
    return v1.predictions_of(v1.predict(probe, {"instances": instances}).expect_accepted())


def _status(probe: Probe) -> None:
    for entry in tfs.versions_of(probe):
        has_state = has_fields(entry, version=str) and entry.get("state") in _STATES
        expect(has_state, f"version as a string and a state of {', '.join(_STATES)}", entry)
        status = entry.get("status")
        has_error = has_fields(status, error_message=str) and "error_code" in status
        expect(has_error, "a status of error_code and error_message", status)


def _metadata(probe: Probe) -> None:
    spec = probe.get(f"{v1.model_path(probe)}/metadata").expect_object().get("model_spec")
    expect(has_fields(spec, name=str, version=str), "model_spec of name and version as strings", spec)
    tfs.signatures_of(probe)


def _columnar_outputs(probe: Probe) -> Any:
    rows = _instances(probe)
    _predictions(probe, rows)
    first = rows[0]
    if is_object(first) and set(first) != {"b64"}:
        columns: object = {name: [row[name] for row in rows if is_object(row)] for name in first}
    else:
        columns = rows
    answer = v1.predict(probe, {"inputs": columns}).expect_object()
    expect("outputs" in answer, "outputs", answer)
    return answer["outputs"]


def _agree(probe: Probe) -> None:
    predictions, outputs = _predictions(probe, _instances(probe)), _columnar_outputs(probe)
    if is_object(outputs):
        agree = all(is_object(prediction) and set(prediction) == set(outputs) for prediction in predictions)
        expect(agree, f"rows of {quote(sorted(outputs))}", predictions[0])
    else:
        expect(flattened(outputs) == flattened(predictions), quote(predictions), outputs)


def _version_path(probe: Probe) -> None:
    rows = _instances(probe)
    _predictions(probe, rows)
    version = tfs.versions_of(probe)[0].get("version")
    v1.predict(probe, {"instances": rows}, f"/versions/{version}").expect_object()


def _both(probe: Probe) -> None:
    rows = _instances(probe)
    v1.predict(probe, {"instances": rows, "inputs": rows}).expect_status(400)


def _bad_base64(probe: Probe) -> None:
    (first, *others) = tfs.default_signature(probe)["inputs"].values()
    if others or first.get("dtype") != "DT_STRING":
        raise NotApplicableError("About models with one string input")
    v1.predict(probe, {"instances": [{"b64": "%%% not base64 %%%"}]}).expect_status(400)


_PAGE = "TensorFlow Serving, RESTful API"
_PREDICTS = ("TFS-005",)

CHECKS = (
    Check("TFS-001", MUST, "GET /v1/models/<model> lists the states of the versions.", f"{_PAGE}, Model status",
          _status),
    Check("TFS-002", MUST, "With a version in the path, only that version is listed.", f"{_PAGE}, Model status",
          tfs.check_version_alone, requires=("TFS-001",)),
    Check("TFS-003", MUST, "The status of an unknown model is 404.", "Its handler's tests",
          lambda probe: probe.get(v1.UNKNOWN_PATH).expect_status(404)),
    Check("TFS-004", MUST, "Metadata has model_spec, and signature_def nested in signature_def.",
          f"{_PAGE}, Model Metadata", _metadata),
    Check("TFS-005", MUST, "POST <model>:predict returns predictions for instances.", f"{_PAGE}, Predict",
          lambda probe: _predictions(probe, _instances(probe)), requires=("TFS-004",)),
    Check("TFS-006", MUST, "There is one prediction for each instance.", f"{_PAGE}, Predict, row format",
          lambda probe: v1.expect_one_prediction_each(
              _instances(probe), lambda instances: _predictions(probe, instances)), requires=_PREDICTS),
    Check("TFS-007", MUST, "inputs, in columns, returns outputs.", f"{_PAGE}, Predict, column format",
          _columnar_outputs, requires=_PREDICTS),
    Check("TFS-008", MUST, "Rows and columns give the same answer.", f"{_PAGE}, Predict", _agree,
          requires=("TFS-006", "TFS-007")),
    Check("TFS-009", MUST, "A version has its own path.", f"{_PAGE}, Predict", _version_path,
          requires=("TFS-001", "TFS-005")),
    Check("TFS-010", MUST, "A body with both instances and inputs is answered with 400.",
          f"{_PAGE}, Predict; its tests", _both, requires=_PREDICTS),
    Check("TFS-011", MUST, "A body with neither is answered with 400.", "Its handler's tests",
          lambda probe: v1.predict(probe, {"conform": []}).expect_status(400)),
    Check("TFS-012", MUST, "Instances that are not a list, or an empty list, are answered with 400.", "Its tests",
          lambda probe: expect_statuses(
              [v1.predict(probe, {"instances": 1}), v1.predict(probe, {"instances": []})], 400)),
    Check("TFS-013", MUST, "Invalid JSON is answered with 400.", "Its tests",
          lambda probe: v1.post_bad_json(probe).expect_status(400)),
    Check("TFS-014", SHOULD, "An unknown path under /v1/ is answered with 400.", "Its handler: Malformed request",
          lambda probe: expect_statuses(
              [probe.get(f"{v1.model_path(probe)}:predict"), probe.get("/v1/conform")], 400)),
    Check("TFS-015", MUST, "A prediction with an unknown model is answered with 404.", "Its handler's tests",
          lambda probe: probe.post_json(f"{v1.UNKNOWN_PATH}:predict", {"instances": [1]}).expect_status(404)),
    Check("TFS-016", MUST, "An unknown signature is answered with 400.", "Its predict code",
          lambda probe: v1.predict(
              probe, {"signature_name": UNKNOWN, "instances": _instances(probe)}).expect_status(400),
          requires=_PREDICTS),
    Check("TFS-017", SHOULD, "An unknown label is answered with 400.", "Its server core",
          lambda probe: v1.predict(probe, {"instances": _instances(probe)}, f"/labels/{UNKNOWN}").expect_status(400),
          requires=_PREDICTS),
    Check("TFS-018", MUST, "Invalid base64 in b64 is answered with 400.", f"{_PAGE}, Encoding binary values",
          _bad_base64, requires=_PREDICTS),
    Check("TFS-019", MUST, "Refusals are JSON objects with a text in error.", f"{_PAGE}, Error response",
          lambda probe: expect_error_texts(probe.get(v1.UNKNOWN_PATH), v1.predict(probe, {"conform": []}))),
)  # fmt: skip
