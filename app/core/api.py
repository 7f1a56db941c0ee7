"""The types that hooks name. A plugin of a third party imports them from ``charioteer.plugins``."""

from litestar import Response as Response
from litestar.handlers import ASGIRouteHandler
from litestar.handlers import HTTPRouteHandler as HTTPRouteHandler
from prometheus_client import CollectorRegistry as CollectorRegistry

from app.core.engine.engine import Engine as Engine
from app.core.engine.events import InferenceObserver as InferenceObserver
from app.core.engine.events import OutputAnnotator as OutputAnnotator
from app.core.engine.events import RecordSink as RecordSink
from app.core.engine.models.servable import Servable as Servable
from app.core.engine.request_context import RequestContext as RequestContext
from app.core.protocols.grpc_protocol import GrpcMethods as GrpcMethods
from app.core.protocols.grpc_protocol import GrpcProtocol as GrpcProtocol
from app.core.protocols.protocol import Endpoint as Endpoint
from app.core.protocols.protocol import HttpListener as HttpListener
from app.core.protocols.protocol import HttpProtocol as HttpProtocol
from app.core.protocols.protocol import HttpRequest as HttpRequest
from app.core.runtimes.onnxruntime.layouts.layout import Layout as Layout
from app.core.runtimes.python.task_adapters import TaskAdapter as TaskAdapter
from app.core.server.auth.access_control import IdentityProvider as IdentityProvider
from app.core.server.auth.credentials import Identity as Identity
from app.core.server.auth.credentials import unauthenticated as unauthenticated
from app.core.server.auth.http_access import HttpAccess as HttpAccess
from app.core.server.auth.http_access import requires as requires
from app.core.server.grpc.server import GrpcServer as GrpcServer
from app.core.server.serving import Listener as Listener
from app.core.settings.command_options import command_options as command_options
from app.core.settings.model import ImportedConfig as ImportedConfig
from app.core.settings.model import ModelSource as ModelSource
from app.core.settings.server import ServerSettings as ServerSettings
from metadata.model import Fact as Fact
from metadata.model import ModelMetadata as ModelMetadata
from metadata.model import Origin as Origin
from tasks.image_classification import Classification as Classification
from tasks.image_classification import ImageClassification as ImageClassification
from tasks.inference.response import InferenceResult as InferenceResult
from tasks.task import TaskType as TaskType

RouteHandler = HTTPRouteHandler | ASGIRouteHandler
