"""The types that hooks name. A plugin of a third party imports them from ``charioteer.plugins``."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from litestar import Response
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from prometheus_client import CollectorRegistry

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
from app.core.engine.engine import Engine
from app.core.engine.events import InferenceObserver, OutputAnnotator, RecordSink
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.protocols.grpc_protocol import GrpcMethods, GrpcProtocol
from app.core.protocols.inference_call import CodecCall, HttpAnswer, InferenceHead
from app.core.protocols.protocol import Endpoint, HttpListener, HttpProtocol, HttpRequest, infer_endpoint, read_endpoint
from app.core.runtimes.onnxruntime.graph import ImageGraph
from app.core.runtimes.onnxruntime.layouts.layout import Bound, GraphView, Layout, Match
from app.core.runtimes.python.outputs.labelled_scores import read_classification
from app.core.runtimes.python.task_adapters import TaskAdapter
from app.core.server.auth.access_control import IdentityProvider
from app.core.server.auth.credentials import Identity, unauthenticated
from app.core.server.auth.http_access import HttpAccess, requires
from app.core.server.grpc.server import GrpcServer
from app.core.server.transport.connection_table import Listener
from app.core.settings.command_options import command_options
from app.core.settings.model import ImportedConfig, ModelError, ModelSource
from app.core.settings.server import ServerSettings
from app.core.wire.bytes_elements import BinaryElement
from metadata.model import Fact, ModelMetadata, Origin
from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.inference.error import InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse, InferenceResult
from tasks.inference.tensor import BytesTensor
from tasks.task import TaskType
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

RouteHandler = HTTPRouteHandler | ASGIRouteHandler
