"""CloudEvents around requests and answers of KServe V1."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    name="cloud_events",
    summary="CloudEvents around requests and answers of KServe V1.",
    requires=("kserve_v1",),
    extends={"kserve-v1.envelopes": Ref("app.plugins.cloud_events.events:ENVELOPES")},
)
