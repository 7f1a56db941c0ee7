"""The types that hooks name. A plugin of a third party imports them from ``charioteer.plugins``."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from litestar import Response
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.events import InferenceObserver, OutputAnnotator, RecordSink
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.protocols.grpc_protocol import GrpcMethods, GrpcProtocol, unary_handler
from app.core.protocols.inference_call import CodecCall, HttpResponse, RequestHead
from app.core.protocols.kserve_v1.wire import ListedModels, WireModel
from app.core.protocols.protocol import Endpoint, HttpListener, HttpProtocol, HttpRequest, infer_endpoint, read_endpoint
from app.core.runtimes.onnxruntime.files.model_files import FolderMetadata, GraphFileReader
from app.core.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.core.runtimes.onnxruntime.images.preprocessing import PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.candidates import Candidates, best_indices
from app.core.runtimes.onnxruntime.layouts.layout import Bound, GraphOutput, GraphView, Layout, Match, RawSegments
from app.core.runtimes.python.outputs.image_objects import read_detections, read_oriented_detections, read_segments
from app.core.runtimes.python.outputs.labelled_scores import read_classification
from app.core.runtimes.python.outputs.tensor import read_tensors
from app.core.runtimes.python.outputs.text import read_answers
from app.core.runtimes.python.task_adapters import PythonLibrary, TaskAdapter
from app.core.server.auth.access_control import IdentityProvider
from app.core.server.auth.credentials import Identity, unauthenticated
from app.core.server.auth.http_access import HttpAccess, requires
from app.core.server.grpc.server import GrpcServer
from app.core.server.serving import Listener
from app.core.settings.model import ImportedConfig, ModelError, ModelSource
from app.core.settings.server import ServerSettings
from app.core.wire.bytes_elements import BinaryElement
from metadata.model import Fact, ModelMetadata, Origin
from tasks.image_classification import Classification, ClassificationInput, ImageClassification, LabelledScore
from tasks.image_segmentation import (
    ImageSegmentation,
    Point,
    SegmentationInput,
    SegmentationParameters,
    SegmentedObject,
    Segments,
)
from tasks.image_text_to_text import Answer, Answers, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse, InferenceResult
from tasks.inference.tensor import BytesTensor, Datatype, Tensor, TensorSpec
from tasks.object_detection import (
    DetectedObject,
    DetectionInput,
    DetectionParameters,
    Detections,
    ObjectDetection,
    PosedObject,
)
from tasks.oriented_object_detection import OrientedDetections, OrientedObject, OrientedObjectDetection
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

RouteHandler = HTTPRouteHandler | ASGIRouteHandler
