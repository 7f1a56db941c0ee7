"""Settings that the plugin checks when the service is built."""

import pytest

from app.core.assembly.discovery import discover
from app.core.assembly.service import Service
from app.core.settings.server import DEMO_MODELS, SettingsError
from tests.support.servers.settings import settings_of_main_port


def service(endpoint: str) -> Service:
    settings = settings_of_main_port(otlp_endpoint=endpoint)
    return Service(settings, lambda: discover(DEMO_MODELS / "detector"))


@pytest.mark.parametrize("endpoint", ["collector:4318", "http://[x"])
def test_endpoint_of_traces_that_is_no_url_is_rejected(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="--otlp-endpoint: Expected a URL that begins with http:// or https://"):
        service(endpoint)


def test_empty_endpoint_of_traces_is_accepted() -> None:
    assert service("").engine
