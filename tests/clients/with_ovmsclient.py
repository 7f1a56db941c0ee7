"""Check OpenVINO's client for TensorFlow Serving: ``python -m tests.clients.with_ovmsclient HOST:PORT HOST:PORT``.

The addresses are those of REST and gRPC.
"""

import importlib
import sys
from typing import Any

import numpy as np

from tests.clients.checks import IMAGE_OF_MODEL, SCENE, raised_error, run

ovmsclient: Any = importlib.import_module("ovmsclient")
errors: Any = importlib.import_module("ovmsclient.tfs_compat.base.errors")

HALVES = {"x": np.array([1, 2], np.float32)}


def check_numbers(http: Any, grpc: Any) -> None:
    for client in (http, grpc):
        assert client.predict(HALVES, "half_plus_two").tolist() == [2.5, 3.0]
        assert client.predict(HALVES, "half_plus_two", 1).tolist() == [2.5, 3.0]


def check_images(http: Any, grpc: Any) -> None:
    over_http = http.predict({"image": [SCENE]}, "detector")
    over_grpc = grpc.predict({"image": [SCENE]}, "detector")
    assert set(over_http) == set(over_grpc) == {"num_detections", "labels", "scores", "boxes"}
    assert over_http["num_detections"].tolist() == over_grpc["num_detections"].tolist() == [5]
    np.testing.assert_allclose(over_http["boxes"], over_grpc["boxes"], atol=1e-3)


def check_status_and_metadata(http: Any, grpc: Any) -> None:
    for name in (*IMAGE_OF_MODEL, "half_plus_two"):
        assert http.get_model_status(name) == grpc.get_model_status(name)
        assert grpc.get_model_status(name)[1]["state"] == "AVAILABLE"
        definitions = http.get_model_metadata(name)["metadata"]["signature_def"]["signature_def"]
        over_grpc = grpc.get_model_metadata(name)
        for part in ("inputs", "outputs"):
            assert set(definitions["serving_default"][part]) == set(over_grpc[part])
    assert grpc.get_model_metadata("half_plus_two")["inputs"] == {"x": {"shape": [-1], "dtype": "DT_FLOAT"}}


def check_errors(http: Any, grpc: Any) -> None:
    for client in (http, grpc):
        raised_error(errors.ModelNotFoundError, client.predict, HALVES, "missing")
        raised_error(errors.ModelNotFoundError, client.get_model_status, "half_plus_two", 7)
        raised_error(errors.InvalidInputError, client.predict, {"z": HALVES["x"]}, "half_plus_two")


if __name__ == "__main__":
    run(globals(), ovmsclient.make_http_client(sys.argv[1]), ovmsclient.make_grpc_client(sys.argv[2]))
