"""Check the licence of Charioteer: its text, and each place that states it."""

import hashlib
import shlex
import tomllib

from tests.deploy.containerfile import arguments_of, stages
from tests.support.servers.server_process import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOLDER = "Copyright 2026 The Charioteer authors"
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the text that the Apache Software Foundation publishes."""


def test_licence_file_is_apache_2_with_own_copyright_line() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.count(HOLDER) == 1
    published = text.replace(HOLDER, "Copyright [yyyy] [name of copyright owner]")
    assert hashlib.sha256(published.encode()).hexdigest() == APACHE_2


def test_metadata_states_licence_as_in_pep_639() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    assert PROJECT["authors"] == [{"name": "The Charioteer authors"}]
    # PEP 639 forbids licence classifiers next to an SPDX expression.
    assert PROJECT["classifiers"]
    assert not [classifier for classifier in PROJECT["classifiers"] if classifier.startswith("License ::")]


def test_metadata_has_no_urls() -> None:
    assert "urls" not in PROJECT
    assert "://" not in str(PROJECT)


def test_image_label_states_licence() -> None:
    labels = dict(pair.split("=", 1) for rest in arguments_of(stages()[1], "LABEL") for pair in shlex.split(rest))
    assert labels["org.opencontainers.image.licenses"] == PROJECT["license"]


def test_documents_state_licence() -> None:
    for name in ("README.md", "docs/security.md", "docs/index.md"):
        assert PROJECT["license"] in (ROOT / name).read_text(), name
