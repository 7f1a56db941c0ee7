"""Create the page of a server."""

from app.core.hooks import Host, Parts
from app.core.server.auth.bind_policy import is_loopback_host
from app.plugins.page.guide import guide_folder
from app.plugins.page.page import WebPage
from app.plugins.page.protocol_proxy import ProtocolProxy
from app.plugins.page.settings import PageSettings
from app.plugins.page.trends import Trends


def start(host: Host) -> Parts:
    """Return the routes of the page, and the observer of its metrics."""
    settings, is_local = host.settings.of(PageSettings), is_loopback_host(host.settings.host)
    page = WebPage(
        host.engine,
        Trends(host.engine.registry.has_model),
        # On other addresses, a client that is not a browser can forge any Host and Origin header.
        admin=False if settings.page_admin is None and not is_local else settings.page_admin,
        proxy=ProtocolProxy(
            host.port_names, host.port, (lambda: host.grpc) if host.settings.grpc is not False else None
        ),
        chariot_protocol=host.settings.chariot_protocol,
        # On other addresses, only the metrics of GRPS are shown by default.
        full=is_local if settings.page is None else settings.page,
        guide=guide_folder(),
        views=host.views,
        access=host.access,
    )
    return page.parts
