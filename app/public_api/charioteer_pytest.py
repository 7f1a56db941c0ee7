"""Add the options of the conformance checker to pytest, and load its plugin if ``--conform-url`` is given.

The wheel installs this module as ``charioteer_pytest``. pytest loads it in every run of its environment, where another
project may have its own package ``app``: it therefore imports ``app`` on demand only.
"""

from pathlib import Path
from typing import Any

import pytest

_TEXT: dict[str, Any] = {"metavar": "TEXT"}
_FILE: dict[str, Any] = {"metavar": "FILE", "type": Path}
_SEVERAL: dict[str, Any] = {"action": "append", "default": []}

_OPTIONS = (
    ("url", _TEXT, "base URL of the server to check; grpc://host:port for gRPC"),
    ("protocol", _TEXT, "protocol to check, as in charioteer conform (default: chariot-v2-kserve)"),
    ("model", _TEXT, "the model's name in paths and messages"),
    ("task-type", _TEXT, "task type of the model (default: detected from its answers)"),
    ("health-path", _TEXT, "path of the platform's health check"),
    ("image", _FILE | _SEVERAL, "an image in which the model detects something; may be repeated"),
    ("header", _TEXT | _SEVERAL, 'HTTP header for authentication, "Name: value"; may be repeated'),
    ("header-file", _FILE, "file with such headers, one per line, to keep keys out of the command line"),
    ("ca", _FILE, "certificate authorities to trust for TLS (PEM; default: those of the system)"),
    ("cert", _FILE, "client certificate for mutual TLS (PEM)"),
    ("key", _FILE, "private key of the client certificate, if it is in another file"),
    ("request", _FILE, "file with the JSON body of an inference request that the model can answer"),
    ("timeout", {"metavar": "SECONDS", "type": float, "default": 30.0}, "timeout of a request"),
    ("max-requests", {"metavar": "N", "type": int, "default": 400}, "maximum number of requests"),
)
"""The options without their prefix, the arguments of `addoption`, and the help."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, which do nothing without ``--conform-url``."""
    group = parser.getgroup("charioteer", "check a server against an inference protocol")
    for name, arguments, text in _OPTIONS:
        group.addoption(f"--conform-{name}", help=text, **arguments)


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin if ``--conform-url`` is given. Raise pytest.UsageError if the checker is not loaded."""
    if config.getoption("conform_url"):
        # The tested project may have its own package `app`.
        from charioteer import import_own

        if "conformance" not in import_own("app.core.plugins").registry().loaded:
            raise pytest.UsageError("--conform-url needs Charioteer's plugin conformance, which is not loaded")
        pytest_plugin = import_own("app.plugins.conformance.pytest_plugin")
        config.pluginmanager.register(pytest_plugin.Conformance(config), "charioteer-conformance")
