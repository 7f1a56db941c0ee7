"""Test which paths are accepted: the cases of TensorFlow Serving's own tests, and more."""

from typing import Any

import pytest

from app.plugins.tensorflow_serving.targets import ModelTarget, Verb, parse_target
from tasks.inference.error import InferenceError


def target(model: str, verb: Verb, **fields: Any) -> ModelTarget:
    return ModelTarget(model=model, verb=verb, **fields)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/models/m", target("m", "status")),
        ("GET", "/v1/models/m/versions/7", target("m", "status", version=7)),
        ("GET", "/v1/models/m/versions/007", target("m", "status", version=7)),
        ("GET", f"/v1/models/m/versions/{'0' * 5000}7", target("m", "status", version=7)),
        ("GET", "/v1/models/m/labels/stable", target("m", "status", label="stable")),
        ("GET", "/v1/models/m/metadata", target("m", "metadata")),
        ("GET", "/v1/models/m/versions/7/metadata", target("m", "metadata", version=7)),
        ("GET", "/v1/models/metadata", target("metadata", "status")),
        # The path pattern ignores case, but the comparison with `metadata` does not.
        ("GET", "/V1/MODELS/m/METADATA", target("m", "status")),
        ("GET", "/v1/models/m?x=1", target("m?x=1", "status")),
        ("POST", "/v1/models/m:predict", target("m", "predict")),
        ("POST", "/v1/models/m:regress", target("m", "regress")),
        ("POST", "/V1/models/M/VERSIONS/3:predict", target("M", "predict", version=3)),
        ("POST", "/v1/models/m/labels/a%20b:predict", target("m", "predict", label="a b")),
        ("POST", "/v1/models/a%2Fb%3Ac:predict", target("a/b:c", "predict")),
        ("POST", "/v1/models/Zo%C3%AB:predict", target("Zoë", "predict")),
        ("POST", "/v1/models/a+b:predict", target("a+b", "predict")),
        ("POST", "/v1/models/%FF:predict", target("\ufffd", "predict")),
        ("POST", f"/v1/models/m/versions/{2**63 - 1}:predict", target("m", "predict", version=2**63 - 1)),
    ],
)
def test_valid_path_is_parsed(method: str, path: str, expected: ModelTarget) -> None:
    assert parse_target(method, path) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/foo"),
        ("GET", "/v1/"),
        ("GET", "/v1/models/debug/model_name"),
        ("GET", "/v1/models/m:predict"),
        ("GET", "/v1/models/m/version/50:predict"),
        ("GET", "/v1/models/m/versions/-1"),
        ("GET", "/v1/models/m/versions/٣"),
        ("GET", "/v1/models/m/metadata/more"),
        ("POST", "/v1/models"),
        ("POST", "/v1/models/m/metadata"),
        ("POST", "/v1/models/:predict"),
        ("POST", "/v1/models/m:predict?x=1"),
        ("POST", "/v1/models/m:Predict"),
        ("POST", "/v1/models/m:predict/"),
        ("POST", "/v1/models/m/versions/1/labels/a:predict"),
        ("POST", "/v1/models/m:explain"),
        ("HEAD", "/v1/models/m"),
        ("PATCH", "/v1/models/m:predict"),
    ],
)
def test_invalid_path_is_malformed(method: str, path: str) -> None:
    with pytest.raises(InferenceError) as caught:
        parse_target(method, path)
    assert str(caught.value) == f"Malformed request: {method} {path}"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/versions/1", "/v1/models/labels/x/metadata"])
def test_path_without_a_model_is_rejected(path: str) -> None:
    with pytest.raises(InferenceError, match=r"^Missing model name in request\.$"):
        parse_target("GET", path)


@pytest.mark.parametrize("digits", ["9223372036854775808", "18446744073709551615", "9" * 5000])
def test_version_over_64_bits_is_rejected(digits: str) -> None:
    with pytest.raises(InferenceError, match=f"^Failed to convert version: {digits[:1000]}"):
        parse_target("POST", f"/v1/models/m/versions/{digits}:PREDICT")
