"""Check TensorFlow Serving's REST API."""

from typing import Any

from app.conformance.check import Check, InconclusiveError, Level, NotApplicableError, ViolationError, expect, quote
from app.conformance.client.probe import Exchange, Probe
from app.conformance.row_requests import (
    UNKNOWN,
    UNKNOWN_PATH,
    expect_one_prediction_each,
    given_instances,
    model_path,
    post_bad_json,
    predict,
    predictions_of,
)
from app.conformance.tensors import (
    ENCODED_IMAGES,
    TEXT,
    expect_accepted,
    expect_error_texts,
    expect_json_object,
    expect_status,
    flattened,
    generate_data,
    is_list,
    is_object,
    suggests_text,
)

_STATES = ("UNKNOWN", "START", "LOADING", "AVAILABLE", "UNLOADING", "END")
_REFUSED_TYPES = ("DT_HALF", "DT_BFLOAT16", "DT_COMPLEX64", "DT_COMPLEX128")


def _statuses(exchange: Exchange) -> list[Any]:
    statuses: Any = expect_json_object(exchange).get("model_version_status")
    expect(is_list(statuses) and statuses, "an array of model_version_status", statuses)
    return statuses


def _signature(probe: Probe) -> dict[str, dict[str, Any]]:
    """Return the inputs of the signature serving_default.

    Raises:
        InconclusiveError: the metadata does not have them.
    """
    try:
        described = expect_json_object(probe.get(f"{model_path(probe)}/metadata"))["metadata"]["signature_def"][
            "signature_def"
        ]
        inputs: object = described["serving_default"]["inputs"]
    except (KeyError, TypeError):
        raise InconclusiveError("There is no signature serving_default in the metadata") from None
    if not is_object(inputs) or not inputs or not all(is_object(spec) for spec in inputs.values()):
        raise InconclusiveError(f"The inputs of serving_default are not known: {quote(inputs)}")
    return inputs


def _instance(probe: Probe, image_index: int) -> object:
    """Return one row with a value for every input of the default signature, or the bare value of a single input."""
    row: dict[str, object] = {}
    for name, spec in _signature(probe).items():
        dtype = str(spec.get("dtype"))
        if dtype in _REFUSED_TYPES:
            raise InconclusiveError(f"{name} is {dtype}, which REST does not accept")
        try:
            lengths = [int(dim["size"]) for dim in spec["tensor_shape"].get("dim", [])][1:]
        except (KeyError, TypeError, ValueError):
            raise InconclusiveError(f"The shape of {name} is not known: {quote(spec)}") from None
        element: object = generate_data("BOOL" if dtype == "DT_BOOL" else "INT32", [1])[0]
        if dtype == "DT_STRING":
            element = TEXT if suggests_text(name) else {"b64": ENCODED_IMAGES[image_index]}
        row[name] = _nested(element, [1 if length < 0 else length for length in lengths])
    return next(iter(row.values())) if len(row) == 1 else row


def _nested(element: object, lengths: list[int]) -> object:
    return [_nested(element, lengths[1:])] * lengths[0] if lengths else element


def _instances(probe: Probe) -> list[object]:
    if (instances := given_instances(probe)) is not None:
        return instances
    return [_instance(probe, 0), _instance(probe, 1)]


def _predictions(probe: Probe, instances: list[object]) -> list[object]:
    return predictions_of(expect_accepted(predict(probe, {"instances": instances})))


def _status(probe: Probe) -> None:
    for entry in _statuses(probe.get(model_path(probe))):
        if not is_object(entry) or not isinstance(entry.get("version"), str) or entry.get("state") not in _STATES:
            raise ViolationError(
                f"Expected version as a string and a state of {', '.join(_STATES)}, got {quote(entry)}"
            )
        status = entry.get("status")
        if not is_object(status) or "error_code" not in status or not isinstance(status.get("error_message"), str):
            raise ViolationError(f"Expected a status of error_code and error_message, got {quote(status)}")


def _status_of_version(probe: Probe) -> None:
    version = _statuses(probe.get(model_path(probe)))[0].get("version")
    got = [entry.get("version") for entry in _statuses(probe.get(f"{model_path(probe)}/versions/{version}"))]
    expect(got == [version], f"version {version} alone", got)


def _metadata(probe: Probe) -> None:
    metadata = expect_json_object(probe.get(f"{model_path(probe)}/metadata"))
    spec, outer = metadata.get("model_spec"), metadata.get("metadata")
    if not is_object(spec) or not isinstance(spec.get("name"), str) or not isinstance(spec.get("version"), str):
        raise ViolationError(f"Expected model_spec of name and version as strings, got {quote(spec)}")
    inner = outer.get("signature_def") if is_object(outer) else None
    expect(is_object(inner) and is_object(inner.get("signature_def")), "metadata.signature_def.signature_def", outer)


def _columns(probe: Probe) -> None:
    answer = _columnar(probe)
    expect("outputs" in answer, "outputs", answer)


def _columnar(probe: Probe) -> dict[str, Any]:
    rows = _instances(probe)
    _predictions(probe, rows)
    first = rows[0]
    if is_object(first) and set(first) != {"b64"}:
        columns: object = {name: [row[name] for row in rows if is_object(row)] for name in first}
    else:
        columns = rows
    return expect_json_object(predict(probe, {"inputs": columns}))


def _agree(probe: Probe) -> None:
    predictions, outputs = _predictions(probe, _instances(probe)), _columnar(probe).get("outputs")
    if is_object(outputs):
        names = [set(prediction) if is_object(prediction) else set[str]() for prediction in predictions]
        if any(name != set(outputs) for name in names):
            raise ViolationError(f"Expected rows of {quote(sorted(outputs))}, got {quote(predictions[0])}")
    else:
        expect(flattened(outputs) == flattened(predictions), quote(predictions), outputs)


def _version_path(probe: Probe) -> None:
    rows = _instances(probe)
    _predictions(probe, rows)
    version = _statuses(probe.get(model_path(probe)))[0].get("version")
    expect_json_object(probe.post_json(f"{model_path(probe)}/versions/{version}:predict", {"instances": rows}))


def _both(probe: Probe) -> None:
    rows = _instances(probe)
    expect_status(predict(probe, {"instances": rows, "inputs": rows}), 400)


def _not_a_list(probe: Probe) -> None:
    expect_status(predict(probe, {"instances": 1}), 400)
    expect_status(predict(probe, {"instances": []}), 400)


def _malformed(probe: Probe) -> None:
    expect_status(probe.get(f"{model_path(probe)}:predict"), 400)
    expect_status(probe.get("/v1/conform"), 400)


def _unknown_label(probe: Probe) -> None:
    path = f"{model_path(probe)}/labels/{UNKNOWN}:predict"
    expect_status(probe.post_json(path, {"instances": _instances(probe)}), 400)


def _bad_base64(probe: Probe) -> None:
    (first, *others) = _signature(probe).values()
    if others or first.get("dtype") != "DT_STRING":
        raise NotApplicableError("About models with one string input")
    expect_status(predict(probe, {"instances": [{"b64": "%%% not base64 %%%"}]}), 400)


_PAGE = "TensorFlow Serving, RESTful API"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PREDICTS = ("TFS-005",)

CHECKS = (
    Check("TFS-001", _MUST, "GET /v1/models/<model> lists the states of the versions.", f"{_PAGE}, Model status",
          _status),
    Check("TFS-002", _MUST, "With a version in the path, only that version is listed.", f"{_PAGE}, Model status",
          _status_of_version, requires=("TFS-001",)),
    Check("TFS-003", _MUST, "The status of an unknown model is 404.", "Its handler's tests",
          lambda probe: expect_status(probe.get(UNKNOWN_PATH), 404)),
    Check("TFS-004", _MUST, "Metadata has model_spec, and signature_def nested in signature_def.",
          f"{_PAGE}, Model Metadata", _metadata),
    Check("TFS-005", _MUST, "POST <model>:predict returns predictions for instances.", f"{_PAGE}, Predict",
          lambda probe: _predictions(probe, _instances(probe)), requires=("TFS-004",)),
    Check("TFS-006", _MUST, "There is one prediction for each instance.", f"{_PAGE}, Predict, row format",
          lambda probe: expect_one_prediction_each(_instances(probe), lambda instances: _predictions(probe, instances)),
          requires=_PREDICTS),
    Check("TFS-007", _MUST, "inputs, in columns, returns outputs.", f"{_PAGE}, Predict, column format", _columns,
          requires=_PREDICTS),
    Check("TFS-008", _MUST, "Rows and columns give the same answer.", f"{_PAGE}, Predict", _agree,
          requires=("TFS-006", "TFS-007")),
    Check("TFS-009", _MUST, "A version has its own path.", f"{_PAGE}, Predict", _version_path,
          requires=("TFS-001", "TFS-005")),
    Check("TFS-010", _MUST, "A body with both instances and inputs is answered with 400.",
          f"{_PAGE}, Predict; its tests", _both, requires=_PREDICTS),
    Check("TFS-011", _MUST, "A body with neither is answered with 400.", "Its handler's tests",
          lambda probe: expect_status(predict(probe, {"conform": []}), 400)),
    Check("TFS-012", _MUST, "Instances that are not a list, or an empty list, are answered with 400.", "Its tests",
          _not_a_list),
    Check("TFS-013", _MUST, "Invalid JSON is answered with 400.", "Its tests",
          lambda probe: expect_status(post_bad_json(probe), 400)),
    Check("TFS-014", _SHOULD, "An unknown path under /v1/ is answered with 400.", "Its handler: Malformed request",
          _malformed),
    Check("TFS-015", _MUST, "A prediction with an unknown model is answered with 404.", "Its handler's tests",
          lambda probe: expect_status(probe.post_json(f"{UNKNOWN_PATH}:predict", {"instances": [1]}), 404)),
    Check("TFS-016", _MUST, "An unknown signature is answered with 400.", "Its predict code",
          lambda probe: expect_status(predict(probe, {"signature_name": UNKNOWN, "instances": _instances(probe)}), 400),
          requires=_PREDICTS),
    Check("TFS-017", _SHOULD, "An unknown label is answered with 400.", "Its server core", _unknown_label,
          requires=_PREDICTS),
    Check("TFS-018", _MUST, "Invalid base64 in b64 is answered with 400.", f"{_PAGE}, Encoding binary values",
          _bad_base64, requires=_PREDICTS),
    Check("TFS-019", _MUST, "Refusals are JSON objects with a text in error.", f"{_PAGE}, Error response",
          lambda probe: expect_error_texts(probe.get(UNKNOWN_PATH), predict(probe, {"conform": []}))),
)  # fmt: skip
