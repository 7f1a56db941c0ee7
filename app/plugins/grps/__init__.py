"""The GRPS protocol over HTTP and gRPC."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    name="grps",
    summary="The GRPS protocol over HTTP and gRPC.",
    protocols=Ref("app.plugins.grps.protocols:protocols"),
    extends={
        "conformance.protocols": Ref("app.plugins.grps.conformance.protocols:PROTOCOLS"),
        "evaluation.clients": Ref("app.plugins.grps.evaluation:CLIENTS"),
    },
)
