"""Options of `serve` for TensorFlow Serving's port, and labels for versions in the settings of models."""

import asyncio
from pathlib import Path

import pytest

from app.core.assembly.service import Service
from app.core.engine.models.registry import Registry
from app.core.plugins import registry
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import SettingsError
from app.plugins.tensorflow_serving.protocols import protocols
from app.plugins.tensorflow_serving.version_labels import version_with_label
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
def test_ports_open_if_the_protocol_or_a_port_is_asked_for(
    options: dict[str, int], ports: tuple[int, int] | None
) -> None:
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
