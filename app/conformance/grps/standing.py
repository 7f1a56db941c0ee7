"""How a GRPS engine stands, over HTTP: its health, its flag, and what it says of itself."""

from app.conformance.clause import FaultError
from app.conformance.grps.asking import ROOT, failure, health, message_of, succeeds, success
from app.conformance.grps.messages import UNKNOWN, bare_name, expect_description
from app.conformance.probe import Exchange, Probe

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
    """Live says success."""
    success(health(probe, "live"))


def online(probe: Probe) -> None:
    """Once told to be online, it says that it is ready."""
    was = succeeds(health(probe, "ready"))
    try:
        success(health(probe, "online"))
        success(health(probe, "ready"))
    finally:
        _restore(probe, online=was)


def _offline(probe: Probe) -> Exchange:
    """The readiness of an engine that was told to be offline; it is what it was, afterwards."""
    was = succeeds(health(probe, "ready"))
    try:
        success(health(probe, "offline"))
        return health(probe, "ready")
    finally:
        _restore(probe, online=was)


def _restore(probe: Probe, *, online: bool) -> None:
    shown = list(probe.exchanges)
    health(probe, "online" if online else "offline")
    probe.exchanges[:] = shown


def not_ready(probe: Probe) -> None:
    """Once told to be offline, it says that it is not ready."""
    failure(_offline(probe))


def not_ready_status(probe: Probe) -> None:
    """It says so with HTTP status 503, too."""
    if (got := _offline(probe).status) != 503:
        raise FaultError(f"Expected HTTP status 503, got {got}")


def server_metadata(probe: Probe) -> None:
    """The server is described in YAML."""
    expect_description(message_of(probe.get(f"{ROOT}/metadata/server")))


def model_metadata(probe: Probe) -> None:
    """The model is, by its bare name."""
    name = bare_name(probe)
    expect_description(success(probe.post_json(f"{ROOT}/metadata/model", {"str_data": name})))


def unknown_metadata(probe: Probe) -> None:
    """One that is not known is a failure."""
    failure(probe.post_json(f"{ROOT}/metadata/model", {"str_data": UNKNOWN}))
