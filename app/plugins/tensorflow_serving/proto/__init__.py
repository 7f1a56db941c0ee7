"""The protobuf messages of TensorFlow Serving."""

from pathlib import Path

from app.core.proto import add_descriptors, message_class, service

__all__ = ("MODEL_SERVICE", "PREDICTION_SERVICE", "message_class")

add_descriptors(Path(__file__).parent, "tensorflow", "tensorflow_serving")

PREDICTION_SERVICE = service("tensorflow.serving.PredictionService")
"""The service of TensorFlow Serving for inference and metadata."""

MODEL_SERVICE = service("tensorflow.serving.ModelService")
"""The service of TensorFlow Serving for the state of models."""
