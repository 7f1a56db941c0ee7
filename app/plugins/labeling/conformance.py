"""Check an ML backend of Label Studio: at the URL, or with `--model` at ``/label-studio/<model>`` below it."""

from typing import Any
from urllib.parse import quote

from app.plugins.conformance.check import MUST, SHOULD, Check, Protocol, expect, expect_same
from app.plugins.conformance.client.exchange import Exchange, InconclusiveError
from app.plugins.conformance.client.probe import Probe
from app.plugins.conformance.tensors import ENCODED_IMAGES, expect_form, has_fields, is_list, is_object

_IMAGES = tuple(f"data:image/png;base64,{image}" for image in ENCODED_IMAGES[:2])
_INVALID_IMAGE = "data:image/png;base64,AAAA"
_CONFIG = '<View><Image name="image" value="$image"/><{0} name="label" toName="image">{1}</{0}></View>'
_CONFIGS = (_CONFIG.format("TextArea", ""), _CONFIG.format("RectangleLabels", '<Label value="object"/>'))
_OTHER_EVENT = {"action": "PROJECT_UPDATED"}
_PERCENT = ("x", "y", "width", "height")


def _path(probe: Probe, name: str) -> str:
    model = probe.target.model
    return f"/label-studio/{quote(model, safe='')}/{name}" if model else f"/{name}"


def _setup(probe: Probe) -> tuple[str, dict[str, Any]]:
    """Return a labelling configuration that the engine accepts, the given one or a generated one, and the answer."""
    given: Any = (probe.target.request or {}).get("label_config")
    for config in [given] if given else _CONFIGS:
        body = {"project": "1.1", "schema": config, "hostname": "", "access_token": "", "extra_params": None}
        if (exchange := probe.post_json(_path(probe, "setup"), body)).ok:
            return config, exchange.expect_object()
    raise InconclusiveError("The engine refuses every generated configuration; give label_config with --request")


def _predict(probe: Probe, *images: str) -> Exchange:
    config, _ = _setup(probe)
    tasks = [{"id": index + 1, "data": {"image": image}} for index, image in enumerate(images)]
    params = {"login": None, "password": None, "context": None}
    body = {"tasks": tasks, "project": "1.1", "label_config": config, "params": params}
    return probe.post_json(_path(probe, "predict"), body)


def _results(probe: Probe, *images: str) -> list[dict[str, Any]]:
    results = _predict(probe, *(images or _IMAGES)).expect_object().get("results")
    return expect_form(results, list[dict[str, Any]], "a list of objects in results")


def _regions(probe: Probe) -> list[dict[str, Any]]:
    return [region for result in _results(probe) for region in result["result"]]


def _versioned(probe: Probe) -> None:
    version = _setup(probe)[1].get("model_version")
    expect(isinstance(version, str) and version, "a text in model_version", version)


def _predictions(probe: Probe) -> None:
    for result in _results(probe):
        is_prediction = is_list(result.get("result")) and isinstance(result.get("score"), int | float)
        expect(is_prediction, "a list in result and a number in score", result)


def _tags(probe: Probe) -> None:
    config, _ = _setup(probe)
    for region in _regions(probe):
        has_names = has_fields(region, from_name=str, to_name=str, type=str) and is_object(region.get("value"))
        is_tag = has_names and all(f'name="{region[key]}"' in config for key in ("from_name", "to_name"))
        expect(is_tag, "from_name and to_name of the configuration, type and value", region)
        expect(region["type"] in region["value"] or "text" in region["value"], f"{region['type']} in the value", region)


def _percent(probe: Probe) -> None:
    for region in _regions(probe):
        value: Any = region.get("value")
        points = value.get("points", ()) if is_object(value) else ()
        numbers = [value[name] for name in _PERCENT if name in value] + [number for point in points for number in point]
        expect(all(number <= 100 for number in numbers), "percent of the image's sides, 100 at most", region)
        has_size = not numbers or has_fields(region, original_width=int, original_height=int)
        expect(has_size, "original_width and original_height", region)


def _same_version(probe: Probe) -> None:
    version = _setup(probe)[1].get("model_version")
    expect_same([result.get("model_version") for result in _results(probe)], [version] * 2, "the version of setup")


_CLIENT = "Label Studio, ml/api_connector.py"
_SAVING = "Label Studio, ml/models.py"
_PREDICTS = ("LS-003",)

CHECKS = (
    Check("LS-001", MUST, 'GET health returns {"status": "UP"}.', _CLIENT,
          lambda probe: expect_same(probe.get(_path(probe, "health")).expect_object().get("status"), "UP")),
    Check("LS-002", MUST, "POST setup returns a text in model_version.", _CLIENT, _versioned),
    Check("LS-003", MUST, "POST predict returns one result for each task; otherwise all are dropped.", _SAVING,
          lambda probe: expect_same(len(_results(probe)), 2, "two results")),
    Check("LS-004", MUST, "A result has a list of regions and a score.", _SAVING, _predictions, requires=_PREDICTS),
    Check("LS-005", MUST, "A region names tags of the configuration, and has the value of its type.",
          "Label Studio SDK, validate_prediction", _tags, requires=("LS-004",)),
    Check("LS-006", MUST, "Lengths are percent of the image's sides, and the region has the image's size.",
          "Label Studio SDK, validate_prediction", _percent, requires=("LS-004",)),
    Check("LS-007", SHOULD, "Results have the model_version of setup, by which tasks are predicted once.", _SAVING,
          _same_version, requires=_PREDICTS),
    Check("LS-008", MUST, "An image that cannot be read does not fail the other tasks.", _SAVING,
          lambda probe: expect_same(len(_results(probe, _IMAGES[0], _INVALID_IMAGE)), 2, "two results"),
          requires=_PREDICTS),
    Check("LS-009", SHOULD, "Invalid JSON is refused with 4xx.", "RFC 9110",
          lambda probe: probe.post(_path(probe, "predict"), b'{"tasks": [').expect_error()),
    Check("LS-010", SHOULD, "POST webhook accepts events, also those that mean nothing to a model.", _CLIENT,
          lambda probe: probe.post_json(_path(probe, "webhook"), _OTHER_EVENT).expect_status(200, 201)),
)  # fmt: skip

PROTOCOLS = (Protocol("label-studio", CHECKS),)
