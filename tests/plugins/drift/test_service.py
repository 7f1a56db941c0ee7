"""Drift monitoring of a server's models."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from app.core.settings.model import ModelSource
from app.core.settings.server import SettingsError
from app.plugins.drift.service import Drift
from app.plugins.drift.settings import DriftSettings


def test_models_may_come_after_the_start() -> None:
    Drift(DriftSettings(drift=True), list, CollectorRegistry()).close()


def test_models_without_a_baseline_are_rejected(tmp_path: Path) -> None:
    source = ModelSource(name="m", version="1", folder=tmp_path)
    with pytest.raises(SettingsError, match="--drift needs a drift-baseline"):
        Drift(DriftSettings(drift=True), lambda: [source], CollectorRegistry())
