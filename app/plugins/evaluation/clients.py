"""Send one image to a server over any HTTP protocol, and parse the records of its answer.

It shares no code with the server, so that it works with any engine.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import httpx
import msgspec
import pybase64

from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.runner import InferenceClientError, Records
from tasks.inference.error import truncate

RETRY_DELAYS_S = (0.2, 0.4, 0.8, 1.6)
"""Delays in seconds before retries to a busy server."""
_BUSY = frozenset({429, 503})
_MAX_REASON = 300


class _HttpProtocol(msgspec.Struct, frozen=True):
    """The requests and answers of one protocol.

    Attributes:
        path: returns the inference path for a model's name; an empty name selects the only model.
        request: returns the content type and body, or the query, for an image and parameters.
        records: extracts the records from the answer.
        takes_parameters: whether the protocol supports parameters.
        needs_model: whether the path names the model.
    """

    path: Callable[[str], str]
    request: Callable[[bytes, Mapping[str, object]], Mapping[str, Any]]
    records: Callable[[Any], Any]
    takes_parameters: bool = True
    needs_model: bool = True


class HttpInferenceClient:
    """An HTTP client for inferences. It retries a few times if the server is busy.

    Args:
        client: the HTTP client with timeout and headers; several threads use it.
        url: the URL of the server, without the protocol's path.
        protocol: one of `HTTP_PROTOCOLS`.
        model: the name of the model on the server.
        parameters: the parameters of every request; the question of an item is added.
    """

    def __init__(
        self, client: httpx.Client, url: str, protocol: str, model: str, parameters: Mapping[str, object]
    ) -> None:
        self._client = client
        self._protocol = HTTP_PROTOCOLS[protocol]
        self._url = url.rstrip("/") + self._protocol.path(quote(model, safe=""))
        self._parameters = parameters

    def __call__(self, item: Item, data: bytes) -> Records:
        """Return the records for one image.

        Raises:
            InferenceClientError: when the answer has no records; the message quotes it.
        """
        response = self._post(self._protocol.request(data, item.with_question(self._parameters)))
        if response.status_code != 200:
            raise InferenceClientError(f"HTTP {response.status_code}: {_reason(response)}")
        try:
            records: object = self._protocol.records(msgspec.json.decode(response.content))
            return msgspec.convert(records, list[dict[str, object]])
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            body = truncate(response.text, _MAX_REASON)
            raise InferenceClientError(f"The answer has no records ({type(error).__name__}: {error}): {body}") from None

    def _post(self, request: Mapping[str, Any]) -> httpx.Response:
        for delay in (*RETRY_DELAYS_S, None):
            try:
                response = self._client.post(self._url, **request)
            except httpx.HTTPError as error:
                shown_url = httpx.URL(self._url).copy_with(userinfo=b"")
                raise InferenceClientError(f"{shown_url}: {str(error) or type(error).__name__}") from None
            if response.status_code not in _BUSY or delay is None:
                return response
            time.sleep(delay)
        raise AssertionError


def read_elements(data: Any) -> Any:
    """Return the records of the only image: the output is a list of records, a list in a list, or one JSON text."""
    if len(data) == 1 and not isinstance(data[0], Mapping):
        return msgspec.json.decode(data[0]) if isinstance(data[0], str | bytes) else data[0]
    return data


def records_from_tensors(tensors: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return the records of one image from KServe V2 tensors without the batch dimension.

    Raises:
        LookupError: when expected tensors are missing.
    """
    if "answers" in tensors:
        pairs = zip(tensors["prompts"], tensors["answers"], strict=True)
        return [{"prompt": prompt, "answer": answer} for prompt, answer in pairs]
    labels, scores = cast("Sequence[str]", tensors["labels"]), cast("Sequence[float]", tensors["scores"])
    count = tensors.get("num_detections", tensors.get("num_classes", len(labels)))
    records: list[dict[str, object]] = [
        {"label": label, "score": score} for label, score in list(zip(labels, scores, strict=True))[:count]
    ]
    if "contours" in tensors:
        for record, contour in zip(records, tensors["contours"], strict=False):
            record["contour"] = msgspec.json.decode(contour)
    if "boxes" in tensors:
        for record, box in zip(records, tensors["boxes"], strict=False):
            names = ("xmin", "ymin", "xmax", "ymax") if len(box) == 4 else ("cx", "cy", "w", "h", "r")
            record.update(zip(names, box, strict=True))
    return records


def _base64(data: bytes) -> str:
    return pybase64.b64encode(data).decode()


def _v2_body(data: bytes, parameters: Mapping[str, object]) -> Mapping[str, Any]:
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [_base64(data)], "parameters": parameters}
    return {"json": {"inputs": [tensor]}}


def _chariot_path(model: str) -> str:
    return f"/v2/models/m-{model.lower().removeprefix('m-')}/infer" if model else "/infer"


def _v1_body(data: bytes, parameters: Mapping[str, object]) -> Mapping[str, Any]:
    return {"json": {"instances": [{"image": {"b64": _base64(data)}, "parameters": parameters}]}}


def _tensorflow_serving_body(data: bytes, parameters: Mapping[str, object]) -> Mapping[str, Any]:
    prompts = {"prompts": parameters["prompts"]} if "prompts" in parameters else {}
    return {"json": {"instances": [{"image": {"b64": _base64(data)}, **prompts}]}}


def _grps_body(data: bytes, parameters: Mapping[str, object]) -> Mapping[str, Any]:
    """Return a request in `gmap` form: a binary body would need its parameters in the URL, which is limited."""
    texts = {"image.parameters": msgspec.json.encode(parameters).decode()}
    return {"json": {"gmap": {"s_b": {"image": _base64(data)}, "s_s": texts}}}


HTTP_PROTOCOLS: Mapping[str, _HttpProtocol] = {
    "chariot-v2-kserve": _HttpProtocol(
        _chariot_path, _v2_body, lambda answer: read_elements(answer["outputs"][0]["data"]), needs_model=False
    ),
    "chariot-v2": _HttpProtocol(
        _chariot_path,
        lambda data, parameters: {"json": {"input": _base64(data), "parameters": parameters}},
        lambda answer: answer["output"],
        needs_model=False,
    ),
    "v2": _HttpProtocol(
        lambda model: f"/v2/models/{model}/infer",
        _v2_body,
        lambda answer: read_elements(answer["outputs"][0]["data"]),
    ),
    "v1": _HttpProtocol(lambda model: f"/v1/models/{model}:predict", _v1_body, lambda answer: answer["predictions"][0]),
    "tensorflow-serving": _HttpProtocol(
        lambda model: f"/v1/models/{model}:predict",
        _tensorflow_serving_body,
        lambda answer: records_from_tensors(answer["predictions"][0]),
        takes_parameters=False,
    ),
    "grps": _HttpProtocol(
        lambda model: f"/grps/v1/infer/predict?model={model}" if model else "/grps/v1/infer/predict",
        _grps_body,
        lambda answer: msgspec.json.decode(answer["gmap"]["s_s"]["image"]),
        needs_model=False,
    ),
}
"""The protocols by their names in ``charioteer conform``."""


def _reason(response: httpx.Response) -> str:
    """Return the error message of a response in any protocol."""
    try:
        body = msgspec.json.decode(response.content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return truncate(response.text, _MAX_REASON)
    status: object = body.get("status")
    inner = cast("Mapping[str, object]", status).get("msg") if isinstance(status, Mapping) else None
    message = next((body[name] for name in ("error", "detail", "message") if name in body), inner)
    return truncate(str(message or response.text), _MAX_REASON)
