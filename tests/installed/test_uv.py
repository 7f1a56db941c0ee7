"""Check that uv installs from where pip does, and the same packages."""

import venv
from pathlib import Path

import pytest

from tests.installed import uv
from tests.installed.environments import EXTRAS, Environment, environment_with_extra, linked_environment

SETTINGS = """:env:.find-links='/near /far'
global.cert='/etc/ca.pem'
global.extra-index-url='file:///one\\nfile:///two'
global.find-links='/other'
global.index-url='https://index.example/simple'
install.timeout='7'
list.format='columns'
"""


def test_settings_of_pip_become_options_and_variables_of_uv() -> None:
    translated = uv.translate(SETTINGS)
    assert translated is not None
    options, variables = translated
    pairs = set(zip(options[::2], options[1::2], strict=True))
    assert pairs == {
        ("--index-strategy", "unsafe-best-match"),
        ("--find-links", "/near"),
        ("--find-links", "/far"),
        ("--index", "file:///one"),
        ("--index", "file:///two"),
        ("--default-index", "https://index.example/simple"),
    }
    assert variables == {"SSL_CERT_FILE": "/etc/ca.pem", "UV_HTTP_TIMEOUT": "7"}


def test_setting_without_an_option_of_uv_leaves_the_installation_to_pip() -> None:
    assert uv.translate("global.client-cert='/own.pem'\n") is None


@pytest.mark.slow
def test_uv_installs_what_pip_installs(tmp_path: Path) -> None:
    base, by_uv = linked_environment(), Environment(tmp_path)
    venv.create(tmp_path, symlinks=True)
    assert uv.install(by_uv.python, base.site_packages, *EXTRAS["maite"])
    assert by_uv.packages() == environment_with_extra(base, "maite").packages()
