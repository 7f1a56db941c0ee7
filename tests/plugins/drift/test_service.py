"""Drift monitoring of a server's models."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from app.core.settings.model import ModelSource
from app.core.settings.server import ServerSettings, SettingsError
from app.plugins.drift.service import Drift


def test_models_may_come_after_the_start() -> None:
    Drift(ServerSettings(drift=True), list, CollectorRegistry()).close()


def test_models_without_a_baseline_are_rejected(tmp_path: Path) -> None:
    source = ModelSource(name="m", version="1", folder=tmp_path)
    with pytest.raises(SettingsError, match="--drift needs a drift-baseline"):
        Drift(ServerSettings(drift=True), lambda: [source], CollectorRegistry())
