"""Send the other requests of users and probes, such as health and metrics."""

import random
from collections.abc import Mapping, Sequence

from app.core.proto import message_class
from tests.soak.ledger import SERVER
from tests.soak.traffic import Outcome, RequestKind, refusal_of
from tests.soak.wire import Wire

_ReadyRequest = message_class("inference.ServerReadyRequest")
_ReadyResponse = message_class("inference.ServerReadyResponse")


def other_requests() -> Sequence[RequestKind]:
    """Return requests for health, metadata, metrics, the page and recordings."""
    targets: Mapping[str, bytes] = {
        "/health": b"",
        "/ready": b"ready",
        "/v2/health/ready": b"true",
        "/v2/models/detector": b'"detector"',
        "/v2/models/stats": b"model_stats",
        "/grps/v1/metadata/server": b"charioteer",
        "/metrics": b"charioteer_inferences_total",
        "/": b"Charioteer",
        "/page/page.css": b"{",
        "/inferences?limit=3": b'"inferences"',
    }

    def request_kind(target: str, expected: bytes) -> RequestKind:
        async def send(wire: Wire, number: str, _: random.Random) -> Outcome:
            headers = {"X-Request-ID": number, "Accept": "text/html,*/*" if target == "/" else "*/*"}
            answer = await wire.http("GET", target, b"", headers)
            fault = "" if expected in answer.body else f"{target} answered {answer.body[:200]!r}"
            return refusal_of(answer) or Outcome(200, fault)

        return RequestKind(surface="reads", model=SERVER, weight=0.5, send=send, rows=0)

    async def ready(wire: Wire, number: str, _: random.Random) -> Outcome:
        message = _ReadyRequest().SerializeToString()
        answer = await wire.call("/inference.GRPCInferenceService/ServerReady", message, {"x-request-id": number})
        return refusal_of(answer) or Outcome(200 if _ReadyResponse.FromString(answer.body).ready else 503)

    over_grpc = RequestKind(surface="reads", model=SERVER, weight=1, send=ready, rows=0)
    return [*(request_kind(target, expected) for target, expected in targets.items()), over_grpc]
