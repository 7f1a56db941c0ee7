"""The types that hooks name. A plugin of a third party imports them from ``charioteer.plugins``."""

from litestar import Response
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.events import InferenceObserver, OutputAnnotator, RecordSink
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.protocols.grpc_protocol import GrpcMethods, GrpcProtocol
from app.core.protocols.protocol import Endpoint, HttpListener, HttpProtocol, HttpRequest
from app.core.runtimes.onnxruntime.layouts.layout import Layout
from app.core.runtimes.python.task_adapters import TaskAdapter
from app.core.server.auth.access_control import IdentityProvider
from app.core.server.auth.credentials import Identity, unauthenticated
from app.core.server.auth.http_access import HttpAccess, requires
from app.core.server.grpc.server import GrpcServer
from app.core.server.transport.connection_table import Listener
from app.core.settings.command_options import command_options
from app.core.settings.model import ImportedConfig, ModelSource
from app.core.settings.server import ServerSettings
from metadata.model import Fact, ModelMetadata, Origin
from tasks.image_classification import Classification, ImageClassification
from tasks.inference.response import InferenceResult
from tasks.task import TaskType

RouteHandler = HTTPRouteHandler | ASGIRouteHandler

__all__ = (
    "Classification",
    "CollectorRegistry",
    "Endpoint",
    "Engine",
    "Fact",
    "GrpcMethods",
    "GrpcProtocol",
    "GrpcServer",
    "HTTPRouteHandler",
    "HttpAccess",
    "HttpListener",
    "HttpProtocol",
    "HttpRequest",
    "Identity",
    "IdentityProvider",
    "ImageClassification",
    "ImportedConfig",
    "InferenceObserver",
    "InferenceResult",
    "Layout",
    "Listener",
    "ModelMetadata",
    "ModelSource",
    "Origin",
    "OutputAnnotator",
    "RecordSink",
    "RequestContext",
    "Response",
    "RouteHandler",
    "Servable",
    "ServerSettings",
    "TaskAdapter",
    "TaskType",
    "command_options",
    "requires",
    "unauthenticated",
)
