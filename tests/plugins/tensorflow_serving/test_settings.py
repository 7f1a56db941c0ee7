"""Options of `serve` for TensorFlow Serving's port."""

import pytest

from app.core.plugins import registry
from app.core.settings.server import SettingsError
from app.plugins.tensorflow_serving.protocols import protocols


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
