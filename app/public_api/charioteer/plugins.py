"""What plugins of third parties import: the hooks and their types, nothing else.

``docs/plugins.md`` has an example for each hook.
"""

from typing import TYPE_CHECKING

from charioteer import import_own

if TYPE_CHECKING:
    from app.core.api import BinaryElement as BinaryElement
    from app.core.api import Bound as Bound
    from app.core.api import BytesTensor as BytesTensor
    from app.core.api import Classification as Classification
    from app.core.api import ClassificationInput as ClassificationInput
    from app.core.api import CodecCall as CodecCall
    from app.core.api import CollectorRegistry as CollectorRegistry
    from app.core.api import Endpoint as Endpoint
    from app.core.api import Engine as Engine
    from app.core.api import Fact as Fact
    from app.core.api import GraphView as GraphView
    from app.core.api import GrpcMethods as GrpcMethods
    from app.core.api import GrpcProtocol as GrpcProtocol
    from app.core.api import GrpcServer as GrpcServer
    from app.core.api import HttpAccess as HttpAccess
    from app.core.api import HttpListener as HttpListener
    from app.core.api import HttpProtocol as HttpProtocol
    from app.core.api import HttpRequest as HttpRequest
    from app.core.api import HttpResponse as HttpResponse
    from app.core.api import HTTPRouteHandler as HTTPRouteHandler
    from app.core.api import Identity as Identity
    from app.core.api import IdentityProvider as IdentityProvider
    from app.core.api import Image as Image
    from app.core.api import ImageClassification as ImageClassification
    from app.core.api import ImageGraph as ImageGraph
    from app.core.api import ImportedConfig as ImportedConfig
    from app.core.api import InferenceError as InferenceError
    from app.core.api import InferenceObserver as InferenceObserver
    from app.core.api import InferenceRequest as InferenceRequest
    from app.core.api import InferenceResponse as InferenceResponse
    from app.core.api import InferenceResult as InferenceResult
    from app.core.api import Layout as Layout
    from app.core.api import Listener as Listener
    from app.core.api import Match as Match
    from app.core.api import ModelError as ModelError
    from app.core.api import ModelMetadata as ModelMetadata
    from app.core.api import ModelSource as ModelSource
    from app.core.api import Origin as Origin
    from app.core.api import OutputAnnotator as OutputAnnotator
    from app.core.api import RecordSink as RecordSink
    from app.core.api import RequestContext as RequestContext
    from app.core.api import RequestHead as RequestHead
    from app.core.api import Response as Response
    from app.core.api import RouteHandler as RouteHandler
    from app.core.api import SelectionParameters as SelectionParameters
    from app.core.api import Servable as Servable
    from app.core.api import ServerSettings as ServerSettings
    from app.core.api import TaskAdapter as TaskAdapter
    from app.core.api import TaskType as TaskType
    from app.core.api import command_options as command_options
    from app.core.api import infer_endpoint as infer_endpoint
    from app.core.api import read_classification as read_classification
    from app.core.api import read_endpoint as read_endpoint
    from app.core.api import requires as requires
    from app.core.api import unary_handler as unary_handler
    from app.core.api import unauthenticated as unauthenticated
    from app.core.hooks import API as API
    from app.core.hooks import Command as Command
    from app.core.hooks import ForeignFormat as ForeignFormat
    from app.core.hooks import Host as Host
    from app.core.hooks import ModelLoader as ModelLoader
    from app.core.hooks import ModelSection as ModelSection
    from app.core.hooks import Page as Page
    from app.core.hooks import Parts as Parts
    from app.core.hooks import Plugin as Plugin
    from app.core.hooks import Port as Port
    from app.core.hooks import Protocols as Protocols
    from app.core.hooks import Ref as Ref
    from app.core.hooks import Runtime as Runtime
    from app.core.hooks import TaskSupport as TaskSupport
    from app.core.hooks import View as View

if not TYPE_CHECKING:  # with `__getattr__`, a type checker accepts any name

    def __getattr__(name: str) -> object:
        # A plugin lists itself without the types of the server, whose frameworks take time to import.
        module = import_own("app.core.hooks")
        if name not in vars(module) and not name.startswith("_"):
            module = import_own("app.core.api")
        if name.startswith("_") or name not in vars(module):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(module, name)
        globals()[name] = value
        return value
