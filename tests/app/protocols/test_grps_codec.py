"""What a map says, which model a name means, and answers of odd kinds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.engine.registry import Registry
from app.protocols.grps.address import addressed
from app.protocols.grps.codec import PredictCall
from app.protocols.grps.maps import read_map
from app.protocols.grps.messages import GrpsMessage
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.request import InferenceRequest
from tests.support.grpc_server import built


def mapped(**fields: Any) -> Any:
    return GrpsMessage(gmap={"s_b": {"a": b"x", "b": b"y"}, **fields}).gmap


def registry(*models: tuple[str, str], default: str = "") -> Registry:
    return Registry(
        ModelSource(name=name, version=version, folder=Path(name), settings=ModelSettings(default=name == default))
        for name, version in models
    )


def test_images_come_sorted_with_parameters_and_metadata() -> None:
    found = read_map(
        mapped(
            s_s={
                "parameters": '{"top_k": 1, "score_threshold": 0.1, "seed": 3}',
                "a.parameters": '{"top_k": 9}',
                "metadata": "all",
                "b.metadata": "",
                "question": "what?",
                "action": "predict",
            },
            s_d={"score_threshold": 0.5},
            s_i64={"top_k": 2},
        )
    )
    assert [(each.name, each.elements[0].binary()) for each in found.inputs] == [("a", b"x"), ("b", b"y")]
    assert dict(found.parameters) == {
        "top_k": 2,
        "score_threshold": 0.5,
        "seed": 3,
        "prompts": ["what?"],
        "action": "predict",
    }
    assert [dict(each.parameters) for each in found.inputs] == [{"top_k": 9, "metadata": "all"}, {"metadata": ""}]
    assert dict(found.echoes) == {"a": "metadata", "b": "b.metadata"}
    assert found.places["score_threshold"] == "gmap.s_d[score_threshold]"
    assert found.places["seed"] == "gmap.s_s[parameters].seed"
    assert found.places["prompts"] == "gmap.s_s[question]"


def test_texts_come_sorted_and_what_is_called_as_a_parameter_is_one() -> None:
    gmap = GrpsMessage(
        gmap={
            "s_b": {"m": "é".encode()},
            "s_s": {
                "z": "zed",
                "text": "a",
                "labels": "x",
                "text.metadata": "one",
                "metadata": "all",
                "parameters": "{}",
            },
            "s_i32": {"top_k": 1, "other": 2},
        }
    ).gmap
    found = read_map(gmap, ("labels", "top_k"))
    assert [(each.name, each.elements[0].text()) for each in found.inputs] == [("m", "é"), ("text", "a"), ("z", "zed")]
    assert found.paths == ("gmap.s_b[m]", "gmap.s_s[text]", "gmap.s_s[z]")
    assert dict(found.parameters) == {"labels": "x", "top_k": 1, "other": 2}
    assert dict(found.echoes) == {"m": "metadata", "text": "text.metadata", "z": "metadata"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "gmap.s_s"),
        ({"s_s": {"labels": "x", "metadata": "m", "parameters": "{}"}}, "gmap.s_s"),
        ({"s_s": {"a": "x"}, "s_b": {"a": b"x"}}, "gmap.s_s[a]"),
        ({"s_s": {"a": "x", "b.metadata": "x"}}, "gmap.s_s[b.metadata]"),
        ({"s_s": {"a": "x", "labels.metadata": "x", "labels": "y"}}, "gmap.s_s[labels.metadata]"),
        ({"s_s": {"a": "x", "a.parameters": "x"}}, "gmap.s_s[a.parameters]"),
        ({"s_b": {"a.metadata": b"x"}}, "gmap.s_b[a.metadata]"),
    ],
)
def test_what_a_map_of_texts_cannot_mean_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read_map(GrpsMessage(gmap=fields).gmap, ("labels",))
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, path)


@pytest.mark.parametrize(
    ("gmap", "path"),
    [
        (GrpsMessage(gmap={}).gmap, "gmap.s_b"),
        (mapped(s_b={"metadata": b"x"}), "gmap.s_b[metadata]"),
        (mapped(s_b={"a.metadata": b"x"}), "gmap.s_b[a.metadata]"),
        (mapped(s_b={"a.parameters": b"x"}), "gmap.s_b[a.parameters]"),
        (mapped(s_s={"c.metadata": "x"}), "gmap.s_s[c.metadata]"),
        (mapped(s_s={"c.parameters": "{}"}), "gmap.s_s[c.parameters]"),
        (mapped(s_s={"parameters": ""}), "gmap.s_s[parameters]"),
        (mapped(s_s={"parameters": "[]"}), "gmap.s_s[parameters]"),
        (mapped(s_s={"parameters": "{"}), "gmap.s_s[parameters]"),
        (mapped(s_s={"b.parameters": '{"a": NaN}'}), "gmap.s_s[b.parameters].a"),
        (mapped(s_s={"parameters": '{"metadata": "x"}'}), "gmap.s_s[parameters].metadata"),
        (mapped(s_s={"metadata": "x", "a.metadata": "y", "b.metadata": "z"}), "gmap.s_s[metadata]"),
        (mapped(s_f={"top_k": 1}, s_d={"top_k": 1}), "gmap.s_d[top_k]"),
        (mapped(s_s={"labels": "x"}, s_i32={"labels": 1}), "gmap.s_i32[labels]"),
    ],
)
def test_what_a_map_cannot_mean_is_refused(gmap: Any, path: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read_map(gmap)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, path)


def test_two_questions_in_two_entries_are_refused() -> None:
    with pytest.raises(InferenceError, match="prompts"):
        read_map(mapped(s_s={"prompt": "a", "question": "b"}))


MODELS = (("detector", "1"), ("detector", "2.0-rc1"), ("oriented-detector", "1"), ("oriented", "detector"))


@pytest.mark.parametrize(
    ("model", "name", "version"),
    [
        ("detector", "detector", None),
        ("detector-1", "detector", "1"),
        ("detector-9", "detector", "9"),
        ("detector-", "detector", ""),
        ("detector-2.0-rc1", "detector", "2.0-rc1"),
        ("oriented-detector", "oriented-detector", None),
        ("oriented-detector-1", "oriented-detector", "1"),
        ("oriented-1", "oriented", "1"),
    ],
)
def test_which_model_a_name_means(model: str, name: str, version: str | None) -> None:
    assert addressed(registry(*MODELS), model) == (name, version)


def test_the_default_is_the_only_model_or_the_one_that_is_set() -> None:
    assert addressed(registry(MODELS[0]), "") == ("detector", None)
    assert addressed(registry(*MODELS, default="oriented"), "") == ("oriented", None)


@pytest.mark.parametrize("model", ["", "nobody", "nobody-1", "-1", "-", "detecto-r-1", "x" * 10_000])
def test_a_model_that_is_not_there(model: str) -> None:
    with pytest.raises(InferenceError, match=r"This server has: detector-2\.0-rc1, detector-1, oriented") as caught:
        addressed(registry(*MODELS), model)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.MODEL_NOT_FOUND, "model")
    assert len(str(caught.value)) < 300


def decoded(model: str, **fields: Any) -> tuple[PredictCall, InferenceRequest]:
    engine = built(("detector", "echo-bytes"))
    call = PredictCall(engine.registry, lambda: (GrpsMessage(**fields), False), model)
    return call, call.decode()


@pytest.mark.parametrize(
    ("neutral", "told"),
    [
        ("inputs", "gtensors.tensors"),
        ("inputs[1]", "gtensors.tensors[1]"),
        ("inputs[1].name", "gtensors.tensors[1].name"),
        ("inputs[1].datatype", "gtensors.tensors[1].dtype"),
        ("inputs[0].data", "gtensors.tensors[0].flat_int8"),
        ("inputs[1].data[3]", "gtensors.tensors[1].flat_string[3]"),
        ("inputs[0].parameters.top_k", "top_k"),
        ("model", "model"),
        ("", ""),
    ],
)
def test_paths_are_told_in_the_terms_of_the_message(neutral: str, told: str) -> None:
    tensors: Sequence[Any] = [
        {"dtype": 2, "shape": [1], "flat_int8": [1]},
        {"dtype": 9, "shape": [1], "flat_string": ["x"]},
    ]
    call, _ = decoded("detector", gtensors={"tensors": tensors})
    error = call.localised(InferenceError(ErrorKind.TOO_LARGE, "why", neutral))
    assert (error.kind, error.message, error.path) == (ErrorKind.TOO_LARGE, "why", told)


def test_a_text_for_a_model_of_texts_has_the_dimensions_it_declares() -> None:
    _, request = decoded("echo-bytes", str_data="x")
    (tensor,) = request.inputs
    assert (tensor.name, tensor.shape) == ("x", (1, 1))


def test_parameters_in_a_text_are_read_up_to_a_length() -> None:
    most = 4 * 1024 * 1024
    read_map(mapped(s_s={"parameters": "{}".ljust(most)}))
    with pytest.raises(InferenceError, match="at most 4,194,304 characters of parameters, got 4,194,305"):
        read_map(mapped(s_s={"parameters": "{}".ljust(most + 1)}))
