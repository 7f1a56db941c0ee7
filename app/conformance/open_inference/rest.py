"""Check the Open Inference Protocol, V2, over REST."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from app.conformance.check import Check, InconclusiveError, Level, NotApplicableError, ViolationError, expect, quote
from app.conformance.client.model_names import model_name
from app.conformance.client.probe import Exchange, Probe
from app.conformance.tensors import (
    DATATYPES,
    expect_accepted,
    expect_error,
    expect_error_texts,
    expect_json_object,
    expect_json_type,
    expect_status,
    flattened,
    generate_data,
    is_list,
    is_object,
)

_UNKNOWN = "conform-unknown"
_UNKNOWN_PATH = f"/v2/models/{_UNKNOWN}"


def _model(probe: Probe) -> str:
    return model_name(probe, "/v2/models", "/v1/models")


def _path(probe: Probe) -> str:
    return f"/v2/models/{_model(probe)}"


def _metadata(probe: Probe) -> dict[str, Any]:
    metadata = expect_json_object(probe.get(_path(probe)))
    for name in ("inputs", "outputs"):
        if not _are_specs(metadata.get(name)):
            raise InconclusiveError(f"The metadata does not describe the {name}")
    return metadata


def _are_specs(specs: object) -> bool:
    return is_list(specs) and all(_is_spec(spec) for spec in specs)


def _is_spec(spec: object) -> bool:
    if not is_object(spec) or not isinstance(spec.get("name"), str) or not isinstance(spec.get("datatype"), str):
        return False
    shape = spec.get("shape")
    return is_list(shape) and all(type(length) is int for length in shape)


def _body(probe: Probe, **fields: object) -> dict[str, Any]:
    if probe.target.request:
        return {**probe.target.request, **fields}
    inputs: list[dict[str, Any]] = []
    for spec in _metadata(probe)["inputs"]:
        shape = [1 if length < 0 else length for length in spec["shape"]]
        data = generate_data(spec["datatype"], shape, spec["name"])
        inputs.append({"name": spec["name"], "datatype": spec["datatype"], "shape": shape, "data": data})
    return {"inputs": inputs, **fields}


def _infer(probe: Probe, body: object, headers: Mapping[str, str] | None = None) -> Exchange:
    return probe.post_json(f"{_path(probe)}/infer", body, headers)


def _outputs(probe: Probe) -> list[dict[str, Any]]:
    outputs = expect_accepted(_infer(probe, _body(probe))).get("outputs")
    if not is_list(outputs) or not outputs or not all(is_object(output) for output in outputs):
        raise InconclusiveError("There are no outputs")
    return outputs


def _server_metadata(probe: Probe) -> None:
    metadata = expect_json_object(probe.get("/v2"))
    extensions = metadata.get("extensions")
    if not all(isinstance(metadata.get(name), str) for name in ("name", "version")) or not is_list(extensions):
        raise ViolationError(f"Expected name, version and an array of extensions, got {quote(metadata)}")


def _health_bodies(probe: Probe) -> None:
    for name in ("live", "ready"):
        got = expect_json_object(probe.get(f"/v2/health/{name}"))
        expect(got.get(name) is True, f'{{"{name}": true}}', got)


def _model_metadata(probe: Probe) -> None:
    metadata = expect_json_object(probe.get(_path(probe)))
    if not all(isinstance(metadata.get(name), str) for name in ("name", "platform")):
        raise ViolationError(f"Expected name and platform to be strings, got {quote(metadata)}")
    for name in ("inputs", "outputs"):
        expect(_are_specs(specs := metadata.get(name)), f"{name} to be objects of name, datatype and shape", specs)


def _datatypes(probe: Probe) -> None:
    metadata = _metadata(probe)
    for spec in (*metadata["inputs"], *metadata["outputs"]):
        if spec["datatype"] not in DATATYPES:
            raise ViolationError(
                f"Expected a datatype of the table, got {quote(spec['datatype'])} of {quote(spec['name'])}"
            )


def _infers(probe: Probe) -> None:
    outputs: Any = expect_accepted(_infer(probe, _body(probe))).get("outputs")
    expect(is_list(outputs) and outputs, "outputs", outputs)
    for output in outputs:
        expect(_is_spec(output) and is_list(output.get("data")), "an object of name, datatype, shape and data", output)


def _json(probe: Probe) -> None:
    exchange = _infer(probe, _body(probe))
    expect_accepted(exchange)
    expect_json_type(exchange)


def _specs(probe: Probe) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each output with its spec from the metadata."""
    declared = {spec["name"]: spec for spec in _metadata(probe)["outputs"]}
    return [(output, declared[output["name"]]) for output in _outputs(probe) if output.get("name") in declared]


def _names(probe: Probe) -> None:
    declared = [spec["name"] for spec in _metadata(probe)["outputs"]]
    for output in _outputs(probe):
        expect(output.get("name") in declared, f"one of {quote(declared)}", output.get("name"))


def _output_datatypes(probe: Probe) -> None:
    for output, spec in _specs(probe):
        if output.get("datatype") != spec["datatype"]:
            raise ViolationError(f"{spec['name']}: Expected {spec['datatype']}, got {quote(output.get('datatype'))}")


def _output_shapes(probe: Probe) -> None:
    for output, spec in _specs(probe):
        got, expected = output["shape"], spec["shape"]
        if len(got) != len(expected) or any(e not in (-1, g) for g, e in zip(got, expected, strict=True)):
            raise ViolationError(f"{spec['name']}: Expected {quote(expected)}, got {quote(got)}")


def _counts(probe: Probe) -> None:
    for output in _outputs(probe):
        got, expected = len(flattened(output.get("data"))), math.prod(output["shape"])
        expect(got == expected, f"{expected} elements by its shape", got, str(output.get("name")))


def _values(probe: Probe) -> None:
    for output in _outputs(probe):
        kinds = {"BOOL": bool, "BYTES": str}.get(str(output.get("datatype")), (int, float))
        for value in flattened(output.get("data")):
            if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
                raise ViolationError(
                    f"{output.get('name')}: Expected values of {output.get('datatype')}, got {quote(value)}"
                )


def _id(probe: Probe) -> None:
    got = expect_accepted(_infer(probe, _body(probe, id="conform-1"))).get("id")
    expect(got == "conform-1", "the id conform-1", got)


def _model_name(probe: Probe) -> None:
    got = expect_accepted(_infer(probe, _body(probe))).get("model_name")
    expect(got == _model(probe), "the model's name", got)


def _requested_outputs(probe: Probe) -> None:
    name = _outputs(probe)[-1].get("name")
    outputs = expect_accepted(_infer(probe, _body(probe, outputs=[{"name": name}]))).get("outputs")
    if not is_list(outputs) or [output.get("name") for output in outputs if is_object(output)] != [name]:
        raise ViolationError(f"Expected only {quote(name)}, got {quote(outputs)}")


def _unknown_output(probe: Probe) -> None:
    _outputs(probe)
    expect_error(_infer(probe, _body(probe, outputs=[{"name": _UNKNOWN}])))


def _unknown_model(probe: Probe) -> None:
    expect_status(probe.get(_UNKNOWN_PATH), 404)
    expect_status(probe.post_json(f"{_UNKNOWN_PATH}/infer", {"inputs": []}), 404)


def _not_json(probe: Probe) -> Exchange:
    return probe.post(f"{_path(probe)}/infer", b'{"inputs": [')


def _wrong_datatype(probe: Probe) -> None:
    body = _body(probe)
    expect_error(_infer(probe, {**body, "inputs": [{**tensor, "datatype": "CONFORM"} for tensor in body["inputs"]]}))


def _wrong_count(probe: Probe) -> None:
    body = _body(probe)
    if any(tensor["datatype"] == "BYTES" or not tensor["shape"] for tensor in body["inputs"]):
        raise NotApplicableError("About numeric inputs with a shape; Chariot's clients send other shapes with images")
    wrong = [{**tensor, "shape": [length + 1 for length in tensor["shape"]]} for tensor in body["inputs"]]
    expect_error(_infer(probe, {**body, "inputs": wrong}))


def _unknown_parameters(probe: Probe) -> None:
    _outputs(probe)
    expect_json_object(_infer(probe, _body(probe, parameters={_UNKNOWN: 1})))


def _version(probe: Probe) -> None:
    versions = _metadata(probe).get("versions")
    if not is_list(versions) or not versions:
        raise NotApplicableError("About models with versions")
    expect_json_object(probe.get(f"{_path(probe)}/versions/{versions[0]}"))
    _outputs(probe)
    expect_json_object(probe.post_json(f"{_path(probe)}/versions/{versions[0]}/infer", _body(probe)))


def _binary(probe: Probe) -> None:
    extensions = expect_json_object(probe.get("/v2")).get("extensions")
    if not is_list(extensions) or "binary_tensor_data" not in extensions:
        raise NotApplicableError("About engines that list binary_tensor_data")
    _outputs(probe)
    exchange = _infer(probe, _body(probe, parameters={"binary_data_output": True}))
    expect_status(exchange, 200)
    try:
        length = int(exchange.headers.get("inference-header-content-length", ""))
        head = msgspec.json.decode(exchange.body[:length], type=dict[str, Any])
        size = sum(output["parameters"]["binary_data_size"] for output in head["outputs"])
    except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise ViolationError(f"Expected a JSON header and binary_data_size of every output: {error!r}") from None
    if length + size != len(exchange.body):
        raise ViolationError(f"Expected {length} + {size} bytes, got {len(exchange.body)}")


_OIP = "Open Inference Protocol, REST"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_INFERS = ("V2-008",)

CHECKS = (
    Check("V2-001", _MUST, "GET /v2 returns name, version and extensions.", f"{_OIP}, Server Metadata",
          _server_metadata),
    Check("V2-002", _MUST, "GET /v2/health/live answers with status 200.", f"{_OIP}, Health",
          lambda probe: expect_status(probe.get("/v2/health/live"), 200)),
    Check("V2-003", _MUST, "GET /v2/health/ready answers with status 200.", f"{_OIP}, Health",
          lambda probe: expect_status(probe.get("/v2/health/ready"), 200)),
    Check("V2-004", _SHOULD, "The bodies of the health paths have live and ready.",
          "KServe's InferenceRESTClient reads them", _health_bodies, requires=("V2-002", "V2-003")),
    Check("V2-005", _MUST, "GET /v2/models/<model>/ready answers with status 200.", f"{_OIP}, Health",
          lambda probe: expect_status(probe.get(f"{_path(probe)}/ready"), 200)),
    Check("V2-006", _MUST, "GET /v2/models/<model> returns name, platform, inputs and outputs.",
          f"{_OIP}, Model Metadata", _model_metadata),
    Check("V2-007", _MUST, "Declared datatypes are those of the table, or BF16.", f"{_OIP}, Tensor Data Types",
          _datatypes, requires=("V2-006",)),
    Check("V2-008", _MUST, "POST /v2/models/<model>/infer returns outputs with name, datatype, shape and data.",
          f"{_OIP}, Inference", _infers, requires=("V2-006",)),
    Check("V2-009", _MUST, "The response's Content-Type is application/json.", f"{_OIP}, Inference", _json,
          requires=_INFERS),
    Check("V2-010", _MUST, "Outputs have names that the metadata declares.", f"{_OIP}, Model Metadata", _names,
          requires=_INFERS),
    Check("V2-011", _MUST, "Outputs have the declared datatypes.", f"{_OIP}, Model Metadata", _output_datatypes,
          requires=("V2-007", "V2-008")),
    Check("V2-012", _MUST, "Outputs have shapes that fit the declared ones.", f"{_OIP}, Model Metadata", _output_shapes,
          requires=_INFERS),
    Check("V2-013", _MUST, "data has the number of elements that shape implies.", f"{_OIP}, Tensor Data", _counts,
          requires=_INFERS),
    Check("V2-014", _MUST, "Elements of data are JSON values of their datatype.", f"{_OIP}, Tensor Data", _values,
          requires=("V2-008", "V2-011")),
    Check("V2-015", _MUST, "The response has the id of the request.", f"{_OIP}, Inference", _id, requires=_INFERS),
    Check("V2-016", _MUST, "model_name is the model's.", f"{_OIP}, Inference", _model_name, requires=_INFERS),
    Check("V2-017", _MUST, "Only the requested outputs are returned.", f"{_OIP}, Inference", _requested_outputs,
          requires=_INFERS),
    Check("V2-018", _SHOULD, "An unknown output is refused with 4xx.", "Triton and KServe: 400", _unknown_output,
          requires=_INFERS),
    Check("V2-019", _MUST, "An unknown model is answered with 404.", "Triton, KServe, MLServer and OVMS: 404",
          _unknown_model),
    Check("V2-020", _MUST, "Refusals are JSON objects with a text in error.", f"{_OIP}, errors; tritonclient reads it",
          lambda probe: expect_error_texts(probe.get(_UNKNOWN_PATH), _infer(probe, {"inputs": []}))),
    Check("V2-021", _MUST, "Invalid JSON is an error.", f"{_OIP}, errors",
          lambda probe: expect_error(_not_json(probe), max_status=599)),
    Check("V2-022", _SHOULD, "Invalid JSON is a client error: 4xx.", f"{_OIP}: typically 400; Triton returns 500",
          lambda probe: expect_error(_not_json(probe)), requires=("V2-021",)),
    Check("V2-023", _MUST, "A request without inputs is an error.", f"{_OIP}, Inference",
          lambda probe: expect_error(_infer(probe, {"id": "conform"}), max_status=599)),
    Check("V2-024", _SHOULD, "An unknown datatype is refused with 4xx.", "Triton and KServe: 400", _wrong_datatype,
          requires=("V2-006",)),
    Check("V2-025", _SHOULD, "A shape that does not match the number of elements is refused with 4xx.",
          f"{_OIP}, Tensor Data; Triton returns 500", _wrong_count, requires=("V2-006",)),
    Check("V2-026", _SHOULD, "Unknown parameters are ignored.",
          f"{_OIP}, Parameters: a server may have its own; Triton, KServe and MLServer ignore others",
          _unknown_parameters, requires=_INFERS),
    Check("V2-027", _SHOULD, "Each version in the metadata has its own path.", f"{_OIP}; KServe has none", _version,
          requires=_INFERS),
    Check("V2-028", _MUST, "An engine that lists binary_tensor_data returns binary outputs on request.",
          "Triton, binary tensor data extension", _binary, requires=("V2-001", "V2-008")),
)  # fmt: skip
