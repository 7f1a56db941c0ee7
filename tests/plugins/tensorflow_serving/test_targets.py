"""Test which paths are accepted: the cases of TensorFlow Serving's own tests, and more."""

import pytest

from app.plugins.tensorflow_serving.targets import ModelTarget, is_api_path, parse_target
from tasks.inference.error import InferenceError


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/models/m", ModelTarget(model="m", verb="status")),
        ("GET", "/v1/models/m/versions/7", ModelTarget(model="m", version=7, verb="status")),
        ("GET", "/v1/models/m/versions/007", ModelTarget(model="m", version=7, verb="status")),
        ("GET", f"/v1/models/m/versions/{'0' * 5000}7", ModelTarget(model="m", version=7, verb="status")),
        ("GET", "/v1/models/m/labels/stable", ModelTarget(model="m", label="stable", verb="status")),
        ("GET", "/v1/models/m/metadata", ModelTarget(model="m", verb="metadata")),
        ("GET", "/v1/models/m/versions/7/metadata", ModelTarget(model="m", version=7, verb="metadata")),
        ("GET", "/v1/models/metadata", ModelTarget(model="metadata", verb="status")),
        ("GET", "/v1/models/versions", ModelTarget(model="versions", verb="status")),
        # The path pattern ignores case, but the comparison with `metadata` does not.
        ("GET", "/V1/MODELS/m/METADATA", ModelTarget(model="m", verb="status")),
        ("GET", "/v1/models/m?x=1", ModelTarget(model="m?x=1", verb="status")),
        ("POST", "/v1/models/m:predict", ModelTarget(model="m", verb="predict")),
        ("POST", "/v1/models/m:classify", ModelTarget(model="m", verb="classify")),
        ("POST", "/v1/models/m:regress", ModelTarget(model="m", verb="regress")),
        ("POST", "/V1/models/M/VERSIONS/3:predict", ModelTarget(model="M", version=3, verb="predict")),
        ("POST", "/v1/models/m/labels/a%20b:predict", ModelTarget(model="m", label="a b", verb="predict")),
        ("POST", "/v1/models/a%2Fb%3Ac:predict", ModelTarget(model="a/b:c", verb="predict")),
        ("POST", "/v1/models/Zo%C3%AB:predict", ModelTarget(model="Zoë", verb="predict")),
        ("POST", "/v1/models/100%:predict", ModelTarget(model="100%", verb="predict")),
        ("POST", "/v1/models/a+b:predict", ModelTarget(model="a+b", verb="predict")),
        ("POST", "/v1/models/%FF:predict", ModelTarget(model="\ufffd", verb="predict")),
        (
            "POST",
            "/v1/models/m/versions/9223372036854775807:predict",
            ModelTarget(model="m", version=2**63 - 1, verb="predict"),
        ),
    ],
)
def test_valid_path_is_parsed(method: str, path: str, expected: ModelTarget) -> None:
    assert parse_target(method, path) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/foo"),
        ("GET", "/v1/"),
        ("GET", "/v1/models/"),
        ("GET", "/v1/models/m/"),
        ("GET", "/v1/models/debug/model_name"),
        ("GET", "/v1/models/m:predict"),
        ("GET", "/v1/models/m/version/50:predict"),
        ("GET", "/v1/models/m/versions/-1"),
        ("GET", "/v1/models/m/versions/1.5"),
        ("GET", "/v1/models/m/versions/٣"),
        ("GET", "/v1/models/m/metadata/more"),
        ("POST", "/v1/models"),
        ("POST", "/v1/models/m"),
        ("POST", "/v1/models/m/metadata"),
        ("POST", "/v1/models/:predict"),
        ("POST", "/v1/models/m:predict?x=1"),
        ("POST", "/v1/models/m:Predict"),
        ("POST", "/v1/models/m:predict/"),
        ("POST", "/v1/models/m/versions/1/labels/a:predict"),
        ("POST", "/v1/models/m/labels/a/versions/1:predict"),
        ("POST", "/v1/models/m:explain"),
        ("PUT", "/v1/models/m"),
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


@pytest.mark.parametrize(
    ("path", "served"),
    [("/v1/models", True), ("/V1/x", True), ("/v1/", True), ("/v1", False), ("/", False), ("/v2/models", False)],
)
def test_only_paths_below_v1_belong_to_the_api(path: str, served: bool) -> None:
    assert is_api_path(path) is served
