"""Checks of GRPS that are the same over HTTP and over gRPC."""

from app.conformance.client.probe import Exchange, Probe
from app.conformance.grps.client import call_method, failure, first_success, message_of, predict, succeeds, success
from app.conformance.grps.messages import (
    UNKNOWN,
    bare_name,
    expect_description,
    expect_tensors,
    request_messages,
    tensor_messages,
)


def health(probe: Probe, method: str) -> Exchange:
    """Call a health method, without reusing an earlier response."""
    return call_method(probe, method, fresh=True)


def live(probe: Probe) -> None:
    """Check that the engine reports that it is live."""
    success(health(probe, "CheckLiveness"))


def online(probe: Probe) -> None:
    """Check that the engine is ready after it is set online."""
    success(readiness_after(probe, "Online"))


def readiness_after(probe: Probe, method: str) -> Exchange:
    """Return the readiness response after the engine is set online or offline, and restore the previous state."""
    was_ready = succeeds(health(probe, "CheckReadiness"))
    try:
        success(health(probe, method))
        return health(probe, "CheckReadiness")
    finally:
        exchanges = list(probe.exchanges)
        health(probe, "Online" if was_ready else "Offline")
        probe.exchanges[:] = exchanges


def not_ready(probe: Probe) -> None:
    """Check that the engine is not ready after it is set offline."""
    failure(readiness_after(probe, "Offline"))


def server_metadata(probe: Probe) -> None:
    """Check that the server's metadata is YAML."""
    expect_description(message_of(call_method(probe, "ServerMetadata")))


def model_metadata(probe: Probe) -> None:
    """Check that the model's metadata, by its bare name, is YAML."""
    expect_description(success(call_method(probe, "ModelMetadata", {"str_data": bare_name(probe)})))


def request_unknown_metadata(probe: Probe) -> Exchange:
    """Return the response to a metadata request for an unknown model."""
    return call_method(probe, "ModelMetadata", {"str_data": UNKNOWN})


def unknown_metadata(probe: Probe) -> None:
    """Check that metadata of an unknown model is a failure."""
    failure(request_unknown_metadata(probe))


def tensors(probe: Probe) -> None:
    """Check the tensors of an answer."""
    _, exchange = first_success(probe, tensor_messages(probe.target))
    expect_tensors(message_of(exchange))


def request_unknown_model(probe: Probe) -> Exchange:
    """Return the response to an accepted message with an unknown model."""
    sent, _ = first_success(probe, request_messages(probe.target))
    return predict(probe, {**sent, "model": UNKNOWN})


def unknown_model(probe: Probe) -> None:
    """Check that an unknown model is a failure."""
    failure(request_unknown_model(probe))


def unknown_model_code(probe: Probe) -> None:
    """Check that the code for an unknown model is 404."""
    failure(request_unknown_model(probe), 404)
