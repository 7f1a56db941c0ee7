"""Options of the application on Ray, without Ray."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.core.plugins import registry
from app.core.settings.server import SettingsError
from app.plugins.ray.application import ray_application
from app.plugins.ray.options import model_options, read_options, server_settings
from app.plugins.recording.settings import RecordingSettings
from tests.support.servers.server_process import ROOT


def test_arguments_may_be_text() -> None:
    options, choice = read_options({"model": "/m", "multiplexed": "4", "allow_code": "true", "score_threshold": "0.5"})
    assert options.multiplexed == 4
    assert model_options(choice) == registry().model_options(model=Path("/m"), allow_code=True, score_threshold=0.5)


def test_model_choice_has_the_options_of_the_command_line() -> None:
    choice = {"model_dir": "/models", "device": "cuda:0,cpu", "score_threshold": 0.4, "compile_cache": "/cache"}
    expected = registry().model_options(
        model_dir=Path("/models"), device="cuda:0,cpu", score_threshold=0.4, compile_cache=Path("/cache")
    )
    assert model_options(choice) == expected


def test_model_choice_is_separate_from_other_options() -> None:
    options, choice = read_options({"model": "/m", "score_threshold": 0.5, "model_name": None, "retries": 1})
    assert choice == {"model": "/m", "score_threshold": 0.5}
    assert options == read_options({"model": "/other", "retries": 1})[0]


def test_server_settings_are_read_by_name() -> None:
    assert server_settings({"max_request_bytes": 1000}).max_request_bytes == 1000
    assert not server_settings({}).grpc
    assert server_settings({"record_images": "/pictures"}).of(RecordingSettings).record_images == Path("/pictures")


INVALID: list[tuple[Callable[[dict[str, Any]], object], dict[str, Any], str]] = [
    (read_options, {"replicas": 2}, "argument: Object contains unknown field `replicas`; expected"),
    (read_options, {"score_threshold": 2}, "argument: Expected `float` <= 1.0 - at `$.score_threshold`"),
    (read_options, {"multiplexed": -1}, "argument: Expected `int` >= 0 - at `$.multiplexed`"),
    (read_options, {"settings": {"portt": 1}}, "settings.portt: Expected one of allow_avif_jpeg2000, allowed_hosts, "),
    (read_options, {"settings": {"tls_client_ca": "ca.pem"}}, "settings.tls_client_ca: this has no effect"),
    (read_options, {"batch_wait_seconds": float("inf")}, "argument: Expected `float` <= 1000000000.0 - at"),
    (read_options, {"model": 5}, "argument: Expected a path, got 5 - at `$.model`"),
    (read_options, {"settings": {"record_images": 5}}, "settings: Expected a path, got 5 - at `$.record_images`"),
    (read_options, {"ingress": "many"}, "argument: Expected `object`, got `str` - at `$.ingress`"),
    # A deployment has models of its own.
    (model_options, {"demo": True}, "user_config: Object contains unknown field `demo`"),
    (model_options, {"model": "/m", "retries": 1}, "user_config: Object contains unknown field `retries`"),
    (server_settings, {"grpc": True}, "settings.grpc: Expected one of"),
    (server_settings, {"max_inputs": "many"}, "settings: Expected `int`, got `str` - at `$.max_inputs`"),
    # The ranges of the command line.
    (server_settings, {"request_timeout": float("inf")}, "settings.request_timeout: Expected a finite number, got inf"),
    (server_settings, {"request_timeout": "-1"}, "settings.request_timeout: Must be > 0"),
    (server_settings, {"max_queue_seconds": float("nan")}, "settings.max_queue_seconds: Must be > 0"),
    (server_settings, {"workers": 0}, "settings.workers: Must be > 0"),
]


@pytest.mark.parametrize(("read", "arguments", "message"), INVALID)
def test_invalid_options_are_rejected(
    read: Callable[[dict[str, Any]], object], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        read(arguments)


def test_missing_ray_names_the_extra() -> None:
    with pytest.raises(SettingsError, match=re.escape("pip install 'charioteer[ray]'")):
        ray_application({})


def test_application_is_built_more_than_once() -> None:
    """Replace Ray by stand-ins that accept every call."""
    program = (
        "import sys; from unittest.mock import MagicMock; "
        "sys.modules.update({name: MagicMock() for name in ('ray', 'ray.serve', 'ray.exceptions', "
        "'ray.serve.exceptions')}); "
        "from charioteer import ray_application; "
        "print([ray_application({'model': 'fixtures/models/detector'}) is not None for _ in range(2)])"
    )
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert completed.stdout == "[True, True]\n", completed.stderr
