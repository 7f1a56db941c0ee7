"""The protobuf messages of the gRPC protocols, and of Triton's model configurations.

They are `.proto` files, and the descriptors compiled from them by `make proto`.

The descriptors have their own pool. Clients in the same process, such as tests and user models, register their own
``inference`` package in protobuf's default pool, which accepts each name only once.
"""

from pathlib import Path
from typing import Any

from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ("GRPS", "INFERENCE", "MODEL_SERVICE", "PREDICTION_SERVICE", "message_class")

_FILES = ("inference.binpb", "grps.binpb", "tensorflow.binpb", "tensorflow_serving.binpb", "triton.binpb")


def message_class(name: str) -> Any:
    """Return the class of the message `name`, which includes the package. Type checkers do not know these classes."""
    return GetMessageClass(_pool.FindMessageTypeByName(name))


def _filled_pool() -> DescriptorPool:
    pool = DescriptorPool()
    for imported in (any_pb2, wrappers_pb2):
        pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)
    for file in _FILES:
        for descriptor in FileDescriptorSet.FromString((Path(__file__).parent / file).read_bytes()).file:
            pool.AddSerializedFile(descriptor.SerializeToString())
    return pool


_pool = _filled_pool()

INFERENCE: ServiceDescriptor = _pool.FindServiceByName("inference.GRPCInferenceService")
"""The service of the Open Inference Protocol."""

GRPS: ServiceDescriptor = _pool.FindServiceByName("grps.protos.v1.GrpsService")
"""The service of GRPS."""

PREDICTION_SERVICE: ServiceDescriptor = _pool.FindServiceByName("tensorflow.serving.PredictionService")
"""The service of TensorFlow Serving for inference and metadata."""

MODEL_SERVICE: ServiceDescriptor = _pool.FindServiceByName("tensorflow.serving.ModelService")
"""The service of TensorFlow Serving for the state of models."""
