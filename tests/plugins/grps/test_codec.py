"""Test how GRPS reads maps and model names, and how errors name fields."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.engine.models.registry import Registry
from app.core.settings.model import ModelSettings, ModelSource
from app.plugins.grps.codec import resolve_model
from app.plugins.grps.gmap import echo_metadata, read_map, write_scalars
from app.plugins.grps.messages import GrpsMessage
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.tensor import Datatype, Tensor


def gmap_with(**fields: Any) -> Any:
    return GrpsMessage(gmap={"s_b": {"a": b"x", "b": b"y"}, **fields}).gmap


def registry(*models: tuple[str, str], default: str = "") -> Registry:
    return Registry(
        ModelSource(name=name, version=version, folder=Path(name), settings=ModelSettings(default=name == default))
        for name, version in models
    )


def test_map_images_are_sorted_and_get_parameters_and_metadata() -> None:
    texts = {
        "parameters": '{"top_k": 1, "score_threshold": 0.1, "seed": 3}',
        "a.parameters": '{"top_k": 9}',
        "metadata": "all",
        "b.metadata": "",
        "question": "what?",
        "action": "predict",
    }
    parsed = read_map(gmap_with(s_s=texts, s_d={"score_threshold": 0.5}, s_i64={"top_k": 2}))
    assert [(tensor.name, tensor.elements[0].binary()) for tensor in parsed.inputs] == [("a", b"x"), ("b", b"y")]
    parameters = {"top_k": 2, "score_threshold": 0.5, "seed": 3, "prompts": ["what?"], "action": "predict"}
    assert dict(parsed.parameters) == parameters
    assert [dict(tensor.parameters) for tensor in parsed.inputs] == [{"top_k": 9, "metadata": "all"}, {"metadata": ""}]
    assert dict(parsed.echoes) == {"a": "metadata", "b": "b.metadata"}
    assert parsed.parameter_paths["score_threshold"] == "gmap.s_d[score_threshold]"
    assert parsed.parameter_paths["seed"] == "gmap.s_s[parameters].seed"
    assert parsed.parameter_paths["prompts"] == "gmap.s_s[question]"


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
def test_model_name_is_split_into_name_and_version(model: str, name: str, version: str | None) -> None:
    assert resolve_model(registry(*MODELS), model) == (name, version)


def test_empty_model_name_means_the_only_or_default_model() -> None:
    assert resolve_model(registry(MODELS[0]), "") == ("detector", None)
    assert resolve_model(registry(*MODELS, default="oriented"), "") == ("oriented", None)


@pytest.mark.parametrize("model", ["", "missing", "missing-1", "-1", "-", "detecto-r-1", "x" * 10_000, "-" * 1_000_000])
def test_unknown_model_name_is_rejected_with_the_known_names(model: str) -> None:
    with pytest.raises(InferenceError, match=r"This server has: detector-2\.0-rc1, detector-1, oriented") as caught:
        resolve_model(registry(*MODELS), model)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.MODEL_NOT_FOUND, "model")
    assert len(str(caught.value)) < 300


def test_parameters_text_over_the_length_limit_is_rejected() -> None:
    max_length = 4 * 1024 * 1024
    read_map(gmap_with(s_s={"parameters": "{}".ljust(max_length)}))
    with pytest.raises(InferenceError, match="at most 4,194,304 characters of parameters, got 4,194,305"):
        read_map(gmap_with(s_s={"parameters": "{}".ljust(max_length + 1)}))


def test_bytes_that_are_no_text_are_written_as_bytes() -> None:
    message = GrpsMessage()
    tensors = [
        Tensor(name=name, datatype=Datatype.BYTES, data=np.array([data], object))
        for name, data in (("text", b"Hej"), ("bytes", b"\xff"))
    ]
    write_scalars(message, tensors)
    assert message == GrpsMessage(gmap={"s_s": {"text": "Hej"}, "s_b": {"bytes": b"\xff"}})


def test_number_that_no_field_holds_is_rejected() -> None:
    tensor = Tensor(name="x", datatype=Datatype.UINT64, data=np.array([2**63], np.uint64))
    with pytest.raises(InferenceError, match="'x'"):
        write_scalars(GrpsMessage(), [tensor])


def test_metadata_and_similarity_of_an_output_are_entries_of_the_map() -> None:
    message = GrpsMessage()
    echo_metadata(message, "cam", {"metadata": "m", "similarity": 0.25}, {})
    assert message == GrpsMessage(gmap={"s_s": {"cam.metadata": "m"}, "s_f": {"cam.similarity": 0.25}})
