"""Triton's extensions of KServe V2: generate, repository, statistics and configuration."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="triton",
    summary="Triton's extensions of KServe V2: generate, repository, statistics and configuration.",
)
