"""Check the health, the online flag and the metadata of a GRPS engine over HTTP."""

from app.conformance.check import ViolationError
from app.conformance.client.probe import Exchange, Probe
from app.conformance.grps.client import ROOT, failure, health, message_of, succeeds, success
from app.conformance.grps.messages import UNKNOWN, bare_name, expect_description

__all__ = (
    "live",
    "model_metadata",
    "not_ready",
    "not_ready_status",
    "online",
    "server_metadata",
    "unknown_metadata",
)


def live(probe: Probe) -> None:
    """Check that health/live reports success."""
    success(health(probe, "live"))


def online(probe: Probe) -> None:
    """Check that the engine is ready after health/online."""
    was_ready = succeeds(health(probe, "ready"))
    try:
        success(health(probe, "online"))
        success(health(probe, "ready"))
    finally:
        _restore(probe, online=was_ready)


def _offline(probe: Probe) -> Exchange:
    """Return the readiness response after health/offline, and restore the previous state."""
    was_ready = succeeds(health(probe, "ready"))
    try:
        success(health(probe, "offline"))
        return health(probe, "ready")
    finally:
        _restore(probe, online=was_ready)


def _restore(probe: Probe, *, online: bool) -> None:
    exchanges = list(probe.exchanges)
    health(probe, "online" if online else "offline")
    probe.exchanges[:] = exchanges


def not_ready(probe: Probe) -> None:
    """Check that the engine is not ready after health/offline."""
    failure(_offline(probe))


def not_ready_status(probe: Probe) -> None:
    """Check that the HTTP status of readiness is 503 after health/offline."""
    if (got := _offline(probe).status) != 503:
        raise ViolationError(f"Expected HTTP status 503, got {got}")


def server_metadata(probe: Probe) -> None:
    """Check that the server's metadata is YAML."""
    expect_description(message_of(probe.get(f"{ROOT}/metadata/server")))


def model_metadata(probe: Probe) -> None:
    """Check that the model's metadata, by its bare name, is YAML."""
    name = bare_name(probe)
    expect_description(success(probe.post_json(f"{ROOT}/metadata/model", {"str_data": name})))


def unknown_metadata(probe: Probe) -> None:
    """Check that metadata of an unknown model is a failure."""
    failure(probe.post_json(f"{ROOT}/metadata/model", {"str_data": UNKNOWN}))
