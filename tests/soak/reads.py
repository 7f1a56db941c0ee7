"""What people and probes read beside inferences."""

import random
from collections.abc import Mapping, Sequence

from app.proto import message_class
from tests.soak.ledger import SERVER
from tests.soak.traffic import Outcome, Shot, refused
from tests.soak.wire import Wire

__all__ = ("reads",)

_ReadyRequest = message_class("inference.ServerReadyRequest")
_ReadyResponse = message_class("inference.ServerReadyResponse")


def reads() -> Sequence[Shot]:
    """Health, metadata, metrics, the page, and what was recorded."""
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

    def shot(target: str, wanted: bytes) -> Shot:
        async def ask(wire: Wire, number: str, _: random.Random) -> Outcome:
            headers = {"X-Request-ID": number, "Accept": "text/html,*/*" if target == "/" else "*/*"}
            answer = await wire.http("GET", target, b"", headers)
            fault = "" if wanted in answer.body else f"{target} answered {answer.body[:200]!r}"
            return refused(answer) or Outcome(200, fault)

        return Shot(surface="reads", model=SERVER, weight=0.5, ask=ask, rows=0)

    async def ready(wire: Wire, number: str, _: random.Random) -> Outcome:
        message = _ReadyRequest().SerializeToString()
        answer = await wire.call("/inference.GRPCInferenceService/ServerReady", message, {"x-request-id": number})
        return refused(answer) or Outcome(200 if _ReadyResponse.FromString(answer.body).ready else 503)

    over_grpc = Shot(surface="reads", model=SERVER, weight=1, ask=ready, rows=0)
    return [*(shot(target, wanted) for target, wanted in targets.items()), over_grpc]
