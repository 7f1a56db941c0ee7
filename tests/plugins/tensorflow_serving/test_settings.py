"""Test options of the port, labels for versions in the settings of models, and which paths are accepted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.core.assembly.service import Service
from app.core.engine.models.registry import Registry
from app.core.plugins import registry
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import SettingsError
from app.plugins.tensorflow_serving.protocols import protocols
from app.plugins.tensorflow_serving.targets import ModelTarget, Verb, parse_target
from app.plugins.tensorflow_serving.version_labels import version_with_label
from tasks.inference.error import InferenceError
from tests.support.rejection import rejects
from tests.support.servers.settings import settings_of_main_port


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ({}, None),
        ({"tensorflow_serving": True}, (8501, 8500)),
        ({"tensorflow_serving_port": 0}, (0, 8500)),
        ({"tensorflow_grpc_port": 9}, (8501, 9)),
        ({"tensorflow_serving": False, "tensorflow_serving_port": 9}, None),
    ],
)
def test_ports_open_if_protocol_or_port_is_asked_for(options: dict[str, int], ports: tuple[int, int] | None) -> None:
    enabled = protocols(registry().settings(**options))
    found = (*(port.port for port in enabled.ports), *enabled.grpc_ports.values())
    assert (found, bool(enabled.grpc)) == (ports or (), ports is not None)


@pytest.mark.parametrize(
    ("text", "origins"), [("", []), (" * ", ["*"]), ("https://a.a, http://b.b", ["https://a.a", "http://b.b"])]
)
def test_cors_names_origins_or_any(text: str, origins: list[str]) -> None:
    (port,) = protocols(registry().settings(tensorflow_serving=True, tensorflow_serving_cors=text)).ports
    assert port.origins == origins


@pytest.mark.parametrize("text", ["true", "https://a.example,*"])
def test_invalid_origin_is_rejected(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--tensorflow-serving-cors: expected .*, or \* for any, got"):
        protocols(registry().settings(tensorflow_serving=True, tensorflow_serving_cors=text))


def source(version: str, **labels: str) -> ModelSource:
    settings = registry().model_settings(version_labels=labels)
    return ModelSource(name="m", version=version, folder=Path("m"), settings=settings)


def test_label_maps_to_its_version() -> None:
    versions = Registry([source("1", stable="1", canary="2"), source("2", stable="1")]).versions("m")
    assert [version_with_label(versions, label) for label in ("stable", "canary", "nightly")] == ["1", "2", None]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([source("1", canary="3"), source("2")], "There is no version '3' to be called 'canary'"),
        ([source("1", stable="1"), source("2", stable="2")], "Its versions disagree on 'stable'"),
    ],
)
def test_server_with_wrong_labels_does_not_start(sources: list[ModelSource], message: str) -> None:
    with pytest.raises(ModelError, match=f"^Model 'm': version_labels: {message}"):
        Service(settings_of_main_port(), lambda: sources)


def test_load_of_a_model_with_wrong_labels_is_rejected() -> None:
    sources = [source("1", stable="1")]
    service = Service(settings_of_main_port(), lambda: sources)
    sources[:] = [source("1", stable="7")]
    with rejects("There is no version '7' to be called 'stable'"):
        asyncio.run(service.engine.repository.load("m"))


def target(model: str, verb: Verb, **fields: Any) -> ModelTarget:
    return ModelTarget(model=model, verb=verb, **fields)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/models/m", target("m", "status")),
        ("GET", "/v1/models/m/versions/7", target("m", "status", version=7)),
        ("GET", "/v1/models/m/versions/007", target("m", "status", version=7)),
        ("GET", f"/v1/models/m/versions/{'0' * 5000}7", target("m", "status", version=7)),
        ("GET", "/v1/models/m/labels/stable", target("m", "status", label="stable")),
        ("GET", "/v1/models/m/metadata", target("m", "metadata")),
        ("GET", "/v1/models/m/versions/7/metadata", target("m", "metadata", version=7)),
        ("GET", "/v1/models/metadata", target("metadata", "status")),
        # The path pattern ignores case, but the comparison with `metadata` does not.
        ("GET", "/V1/MODELS/m/METADATA", target("m", "status")),
        ("GET", "/v1/models/m?x=1", target("m?x=1", "status")),
        ("POST", "/v1/models/m:predict", target("m", "predict")),
        ("POST", "/v1/models/m:regress", target("m", "regress")),
        ("POST", "/V1/models/M/VERSIONS/3:predict", target("M", "predict", version=3)),
        ("POST", "/v1/models/m/labels/a%20b:predict", target("m", "predict", label="a b")),
        ("POST", "/v1/models/a%2Fb%3Ac:predict", target("a/b:c", "predict")),
        ("POST", "/v1/models/Zo%C3%AB:predict", target("Zoë", "predict")),
        ("POST", "/v1/models/a+b:predict", target("a+b", "predict")),
        ("POST", "/v1/models/%FF:predict", target("\ufffd", "predict")),
        ("POST", f"/v1/models/m/versions/{2**63 - 1}:predict", target("m", "predict", version=2**63 - 1)),
    ],
)
def test_valid_path_is_parsed(method: str, path: str, expected: ModelTarget) -> None:
    assert parse_target(method, path) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/foo"),
        ("GET", "/v1/"),
        ("GET", "/v1/models/debug/model_name"),
        ("GET", "/v1/models/m:predict"),
        ("GET", "/v1/models/m/version/50:predict"),
        ("GET", "/v1/models/m/versions/-1"),
        ("GET", "/v1/models/m/versions/٣"),
        ("GET", "/v1/models/m/metadata/more"),
        ("POST", "/v1/models"),
        ("POST", "/v1/models/m/metadata"),
        ("POST", "/v1/models/:predict"),
        ("POST", "/v1/models/m:predict?x=1"),
        ("POST", "/v1/models/m:Predict"),
        ("POST", "/v1/models/m:predict/"),
        ("POST", "/v1/models/m/versions/1/labels/a:predict"),
        ("POST", "/v1/models/m:explain"),
        ("HEAD", "/v1/models/m"),
        ("PATCH", "/v1/models/m:predict"),
    ],
)
def test_invalid_path_is_malformed(method: str, path: str) -> None:
    with pytest.raises(InferenceError) as caught:
        parse_target(method, path)
    assert str(caught.value) == f"Malformed request: {method} {path}"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/versions/1", "/v1/models/labels/x/metadata"])
def test_path_without_a_model_is_rejected(path: str) -> None:
    with pytest.raises(InferenceError, match=r"^Missing model name in request\.$"):
        parse_target("GET", path)


@pytest.mark.parametrize("digits", ["9223372036854775808", "18446744073709551615", "9" * 5000])
def test_version_over_64_bits_is_rejected(digits: str) -> None:
    with pytest.raises(InferenceError, match=f"^Failed to convert version: {digits[:1000]}"):
        parse_target("POST", f"/v1/models/m/versions/{digits}:PREDICT")
