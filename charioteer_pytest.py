"""What pytest loads of Charioteer: the options of `app.conformance.pytest_plugin`, and that itself once it is wanted.

It lies beside the packages and imports none of them, because pytest loads it into every run in an environment that has
Charioteer: there, `app` may be the name of somebody's own package.
"""

from pathlib import Path

import pytest

__all__ = ("pytest_addoption", "pytest_configure")

_HELP = {
    "--conform-url": "where an engine is, to be held against a protocol, clause by clause; grpc:// for gRPC",
    "--conform-protocol": "what it should speak, as charioteer conform has it (default: chariot-v2-kserve)",
    "--conform-model": "the model's name in paths and messages",
    "--conform-task-type": "what the model does; found from its answers otherwise",
    "--conform-health-path": "where a platform would ask for health",
}

_CERTIFICATES = {
    "--conform-ca": "authorities to trust over TLS, instead of the usual ones (PEM)",
    "--conform-cert": "a certificate to show to an engine that asks for one (PEM)",
    "--conform-key": "its private key, where it is not in the same file",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, which do nothing without ``--conform-url``."""
    group = parser.getgroup("charioteer", "hold an engine against an inference protocol")
    for name, said in _HELP.items():
        group.addoption(name, metavar="TEXT", help=said)
    group.addoption("--conform-image", action="append", type=Path, metavar="FILE", default=[],
                    help="a picture in which the model finds something; may be repeated")  # fmt: skip
    group.addoption("--conform-header", action="append", metavar="LINE", default=[],
                    help='what the engine\'s gate asks for, "Name: value"; may be repeated')  # fmt: skip
    group.addoption("--conform-header-file", type=Path, metavar="FILE",
                    help="a file of such lines, for keys")  # fmt: skip
    for name, said in _CERTIFICATES.items():
        group.addoption(name, type=Path, metavar="FILE", help=said)
    group.addoption("--conform-request", type=Path, metavar="FILE",
                    help="the JSON body of an inference that the model can answer")  # fmt: skip
    group.addoption("--conform-timeout", type=float, metavar="SECONDS", default=30.0, help="to wait for an answer")
    group.addoption("--conform-max-requests", type=int, metavar="N", default=400, help="no more requests than this")


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin where an engine was named."""
    if config.getoption("conform_url"):
        from app.conformance import pytest_plugin

        config.pluginmanager.register(pytest_plugin.Conformance(config), "charioteer-conformance")
