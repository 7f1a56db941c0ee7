"""The protocols of TensorFlow Serving for `charioteer conform`."""

from app.plugins.conformance.protocol import Protocol
from app.plugins.tensorflow_serving.conformance import rest, rpc

PROTOCOLS = (
    Protocol("tensorflow-serving", rest.CHECKS),
    Protocol("tensorflow-serving-grpc", rpc.CHECKS, rpc=True),
)
