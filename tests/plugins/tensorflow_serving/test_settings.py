"""Options of `serve` for TensorFlow Serving's port."""

import pytest

from app.core.plugins import registry
from app.core.settings.server import SettingsError
from app.plugins.tensorflow_serving.protocols import protocols


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("", []),
        (" * ", ["*"]),
        ("https://a.example, http://b.example", ["https://a.example", "http://b.example"]),
    ],
)
def test_cors_names_origins_or_any(text: str, origins: list[str]) -> None:
    (port,) = protocols(registry().settings(tensorflow_serving_cors=text)).ports
    assert port.origins == origins


@pytest.mark.parametrize("text", ["true", "https://a.example,*"])
def test_invalid_origin_is_rejected(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--tensorflow-serving-cors: expected .*, or \* for any, got"):
        protocols(registry().settings(tensorflow_serving_cors=text))
