"""Add the options of `app.conformance.pytest_plugin` to pytest, and load that plugin if ``--conform-url`` is given.

The wheel installs this module as ``charioteer_pytest``. pytest loads it in every run of its environment, where another
project may have its own package ``app``: it therefore imports ``app`` on demand only.
"""

from pathlib import Path

import pytest

_HELP = {
    "--conform-url": "base URL of the server to check; grpc://host:port for gRPC",
    "--conform-protocol": "protocol to check, as in charioteer conform (default: chariot-v2-kserve)",
    "--conform-model": "the model's name in paths and messages",
    "--conform-task-type": "task type of the model (default: detected from its answers)",
    "--conform-health-path": "path of the platform's health check",
}

_CERTIFICATES = {
    "--conform-ca": "certificate authorities to trust for TLS (PEM; default: those of the system)",
    "--conform-cert": "client certificate for mutual TLS (PEM)",
    "--conform-key": "private key of the client certificate, if it is in another file",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, which do nothing without ``--conform-url``."""
    group = parser.getgroup("charioteer", "check a server against an inference protocol")
    for name, text in _HELP.items():
        group.addoption(name, metavar="TEXT", help=text)
    group.addoption("--conform-image", action="append", type=Path, metavar="FILE", default=[],
                    help="an image in which the model detects something; may be repeated")  # fmt: skip
    group.addoption("--conform-header", action="append", metavar="LINE", default=[],
                    help='HTTP header for authentication, "Name: value"; may be repeated')  # fmt: skip
    group.addoption("--conform-header-file", type=Path, metavar="FILE",
                    help="file with such headers, one per line, to keep keys out of the command line")  # fmt: skip
    for name, text in _CERTIFICATES.items():
        group.addoption(name, type=Path, metavar="FILE", help=text)
    group.addoption("--conform-request", type=Path, metavar="FILE",
                    help="file with the JSON body of an inference request that the model can answer")  # fmt: skip
    group.addoption("--conform-timeout", type=float, metavar="SECONDS", default=30.0, help="timeout of a request")
    group.addoption("--conform-max-requests", type=int, metavar="N", default=400, help="maximum number of requests")


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin if ``--conform-url`` is given."""
    if config.getoption("conform_url"):
        # The tested project may have its own package `app`.
        from charioteer import import_own

        pytest_plugin = import_own("app.conformance.pytest_plugin")
        config.pluginmanager.register(pytest_plugin.Conformance(config), "charioteer-conformance")
