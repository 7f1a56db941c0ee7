"""Triton's extensions of KServe V2: repository, statistics and configuration."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=2,
    endpoints={"kserve-v2": Ref("app.plugins.triton.extensions:endpoints")},
    methods={"kserve-v2-grpc": Ref("app.plugins.triton.methods:METHODS")},
    start=Ref("app.plugins.triton.statistics:start"),
)
