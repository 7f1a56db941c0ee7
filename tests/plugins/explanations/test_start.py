"""Explanations of a server: their workers and their view."""

from app.core.assembly.discovery import discover
from app.core.assembly.service import Service
from app.core.engine.request_context import RequestContext
from app.core.plugins import registry
from app.core.settings.server import DEMO_MODELS
from app.plugins.explanations.explainer import explainers
from tests.support.servers.grpc_server import build_engine


def test_server_has_the_requested_explain_workers_and_limits() -> None:
    settings = registry().settings(
        grpc=False, tensorflow_serving=False, explain_workers=3, max_explanation_samples=7, max_explanation_seconds=2.0
    )
    engine = Service(settings, lambda: discover(DEMO_MODELS / "detector")).engine
    try:
        assert (engine.limits.max_explanation_samples, engine.limits.max_explanation_seconds) == (7, 2.0)
        admission = engine.lane("explanation").admission
        for number in range(3):
            assert admission.has_idle_worker()
            admission.acquire(RequestContext(protocol="test", request_id=str(number)), "", None)
        assert not admission.has_idle_worker()
    finally:
        engine.close()


def test_view_gets_what_explains_each_model() -> None:
    found = explainers(build_engine(("detector", "classifier")).registry)
    assert found == {"detector": "pixels", "classifier": "pixels"}
