"""Check the Open Inference Protocol, V2, over REST."""

from typing import Any

import msgspec

from app.plugins.conformance.check import MUST, SHOULD, Check, NotApplicableError, expect, renamed
from app.plugins.conformance.exchange import Exchange, ViolationError
from app.plugins.conformance.open_inference.messages import answer_of, build_request, infer, metadata_of, model_path
from app.plugins.conformance.open_inference.rpc import SHARED, counts, two_elements_check
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.tensors import UNKNOWN, expect_error_texts, expect_statuses, flattened, is_list

_UNKNOWN_PATH = f"/v2/models/{UNKNOWN}"


def _server_metadata(probe: Probe) -> None:
    metadata = probe.get("/v2").expect_object()
    kinds = {"name": str, "version": str, "extensions": list}
    is_complete = all(isinstance(metadata.get(name), kind) for name, kind in kinds.items())
    expect(is_complete, "name, version and an array of extensions", metadata)


def _health_bodies(probe: Probe) -> None:
    for name in ("live", "ready"):
        got = probe.get(f"/v2/health/{name}").expect_object()
        expect(got.get(name) is True, f'{{"{name}": true}}', got)


def _json(probe: Probe) -> None:
    answer_of(probe)
    infer(probe, build_request(probe)).expect_json()


def _values(probe: Probe) -> None:
    for output in answer_of(probe).outputs:
        kinds = {"BOOL": bool, "BYTES": str}.get(output.datatype, (int, float))
        for value in flattened(output.data):
            is_typed = isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool))
            expect(is_typed, f"values of {output.datatype}", value, output.name)


def _not_json(probe: Probe) -> Exchange:
    return probe.post(f"{model_path(probe)}/infer", b'{"inputs": [')


def _version(probe: Probe) -> None:
    versions = metadata_of(probe).versions
    if not is_list(versions) or not versions:
        raise NotApplicableError("About models with versions")
    path = f"{model_path(probe)}/versions/{versions[0]}"
    probe.get(path).expect_object()
    answer_of(probe)
    probe.post_json(f"{path}/infer", build_request(probe)).expect_object()


def _binary(probe: Probe) -> None:
    extensions = probe.get("/v2").expect_object().get("extensions")
    if not is_list(extensions) or "binary_tensor_data" not in extensions:
        raise NotApplicableError("About engines that list binary_tensor_data")
    answer_of(probe)
    exchange = infer(probe, build_request(probe, parameters={"binary_data_output": True}))
    exchange.expect_status(200)
    try:
        length = int(exchange.headers.get("inference-header-content-length", ""))
        head = msgspec.json.decode(exchange.body[:length], type=dict[str, Any])
        size = sum(output["parameters"]["binary_data_size"] for output in head["outputs"])
    except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise ViolationError(f"Expected a JSON header and binary_data_size of every output: {error!r}") from None
    expect(length + size == len(exchange.body), f"{length} + {size} bytes", len(exchange.body))


_OIP = "Open Inference Protocol, REST"
_INFERS = ("V2-008",)

CHECKS = (
    Check("V2-001", MUST, "GET /v2 returns name, version and extensions.", f"{_OIP}, Server Metadata",
          _server_metadata),
    Check("V2-002", MUST, "GET /v2/health/live answers with status 200.", f"{_OIP}, Health",
          lambda probe: probe.get("/v2/health/live").expect_status(200)),
    Check("V2-003", MUST, "GET /v2/health/ready answers with status 200.", f"{_OIP}, Health",
          lambda probe: probe.get("/v2/health/ready").expect_status(200)),
    Check("V2-004", SHOULD, "The bodies of the health paths have live and ready.",
          "KServe's InferenceRESTClient reads them", _health_bodies, requires=("V2-002", "V2-003")),
    Check("V2-005", MUST, "GET /v2/models/<model>/ready answers with status 200.", f"{_OIP}, Health",
          lambda probe: probe.get(f"{model_path(probe)}/ready").expect_status(200)),
    Check("V2-006", MUST, "GET /v2/models/<model> returns name, platform, inputs and outputs.",
          f"{_OIP}, Model Metadata", metadata_of),
    Check("V2-008", MUST, "POST /v2/models/<model>/infer returns outputs with name, datatype, shape and data.",
          f"{_OIP}, Inference", answer_of, requires=("V2-006",)),
    Check("V2-009", MUST, "The response's Content-Type is application/json.", f"{_OIP}, Inference", _json,
          requires=_INFERS),
    *(renamed(check, "V2") for check in SHARED),
    Check("V2-013", MUST, "data has the number of elements that shape implies.", f"{_OIP}, Tensor Data", counts,
          requires=_INFERS),
    two_elements_check("V2-015", "V2-013"),
    Check("V2-014", MUST, "Elements of data are JSON values of their datatype.", f"{_OIP}, Tensor Data", _values,
          requires=("V2-S03",)),
    Check("V2-019", MUST, "An unknown model is answered with 404.", "Triton, KServe, MLServer and OVMS: 404",
          lambda probe: expect_statuses(
              [probe.get(_UNKNOWN_PATH), probe.post_json(f"{_UNKNOWN_PATH}/infer", {"inputs": []})], 404)),
    Check("V2-020", MUST, "Rejections are JSON objects with a text in error.", f"{_OIP}, errors; tritonclient reads it",
          lambda probe: expect_error_texts(probe.get(_UNKNOWN_PATH), infer(probe, {"inputs": []}))),
    Check("V2-021", MUST, "Invalid JSON is an error.", f"{_OIP}, errors",
          lambda probe: _not_json(probe).expect_error(max_status=599)),
    Check("V2-022", SHOULD, "Invalid JSON is a client error: 4xx.", f"{_OIP}: typically 400; Triton returns 500",
          lambda probe: _not_json(probe).expect_error(), requires=("V2-021",)),
    Check("V2-023", MUST, "A request without inputs is an error.", f"{_OIP}, Inference",
          lambda probe: infer(probe, {"id": "conform"}).expect_error(max_status=599)),
    Check("V2-027", SHOULD, "Each version in the metadata has its own path.", f"{_OIP}; KServe has none", _version,
          requires=_INFERS),
    Check("V2-028", MUST, "An engine that lists binary_tensor_data returns binary outputs on request.",
          "Triton, binary tensor data extension", _binary, requires=("V2-001", "V2-008")),
)  # fmt: skip
