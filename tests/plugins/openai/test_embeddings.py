"""Test OpenAI's embeddings: inputs, encodings, and the models that give one vector for each input."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from numpy.typing import NDArray

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tasks.task import TaskType
from tasks.tensor_inference import ImageTensorInference, ImageTensorInput, ImageTensors, TensorInference, Tensors
from tests.support.data.images import encode_base64, encode_image
from tests.support.models.engines import engine_of
from tests.support.models.fake_models import stand_in_metadata
from tests.support.models.scripted_model import EventRecorder
from tests.support.servers.apps import app_of_protocol, app_with_sources, load_test_model, model_source

PATH = "/openai/v1/embeddings"
RED, BLUE = (
    f"{scheme}:image/png;base64,{encode_base64(encode_image(np.full((8, 8, 3), colour, np.uint8)))}"
    for scheme, colour in (("data", (250, 0, 10)), ("DATA", (0, 10, 250)))
)
DESCRIPTION = stand_in_metadata(TaskType.TENSOR)


def tensor_spec(name: str, datatype: Datatype, *shape: int) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape)


def colours() -> Servable:
    """Return a model whose embedding is the mean colour, with a vector of another name."""

    def mean_colour(item: ImageTensorInput) -> ImageTensors:
        embedding = Tensor(name="embedding", datatype=Datatype.FP64, data=item.image.pixels.mean(axis=(0, 1))[None])
        return ImageTensors([embedding, Tensor(name="logits", datatype=Datatype.FP32, data=np.zeros(7, np.float32))])

    outputs = [tensor_spec("embedding", Datatype.FP64, -1, 1, 3), tensor_spec("logits", Datatype.FP32, -1, 7)]
    return Servable(ImageTensorInference(outputs), lambda items: list(map(mean_colour, items)), DESCRIPTION, {})


def one_text(datatype: Datatype, vector: NDArray[Any], declared: tuple[int, ...]) -> Servable:
    """Return a model that takes one text, and returns `vector`."""
    tensors = Tensors([Tensor(name="vector", datatype=datatype, data=vector)])
    task = TensorInference([tensor_spec("text", Datatype.BYTES, 1)], [tensor_spec("vector", datatype, *declared)])
    return Servable(task, lambda _: [tensors], DESCRIPTION, {})


def counted() -> Servable:
    """Return a model that takes two texts, and returns their vectors and numbers of tokens."""
    vectors = Tensor(name="vector", datatype=Datatype.FP32, data=np.ones((2, 3), np.float32))
    counts = Tensor(name="prompt_tokens", datatype=Datatype.INT64, data=np.array([4, 5]))
    outputs = [tensor_spec("vector", Datatype.FP32, -1, 3), tensor_spec("prompt_tokens", Datatype.INT64, -1)]
    task = TensorInference([tensor_spec("text", Datatype.BYTES, -1)], outputs)
    return Servable(task, lambda _: [Tensors([vectors, counts])], DESCRIPTION, {})


MODELS = {
    "counted": counted,
    "colours": colours,
    "flat": lambda: one_text(Datatype.FP32, np.array([0.5, 2], np.float32), (2,)),
    "row": lambda: one_text(Datatype.FP16, np.array([[0.5, 2]], np.float16), (1, 2)),
    "brain": lambda: one_text(Datatype.BF16, np.array([[0x3F00, 0x4000]], np.uint16), (-1, -1)),
    "pooled": lambda: one_text(Datatype.FP64, np.array([[[[0.5]], [[2.0]]]]), (-1, 2, 1, 1)),
    "grid": lambda: one_text(Datatype.FP32, np.ones((1, 2, 2), np.float32), (-1, 2, 2)),
    "broken": lambda: one_text(Datatype.FP32, np.array([[0.5, np.nan]], np.float32), (-1, 2)),
    "scores": lambda: one_text(Datatype.FP32, np.ones(1, np.float32), (-1,)),
}
NAMES = (*MODELS, "embedder", "continuer")


def load(source: ModelSource) -> Servable:
    return MODELS[source.name]() if source.name in MODELS else load_test_model(source)


@pytest.fixture(scope="module")
def client() -> Generator[TestClient[Litestar]]:
    with TestClient(app_with_sources([model_source(name) for name in NAMES], load, "openai")) as client:
        yield client


def embed(client: TestClient[Litestar], model: str, given: object, **members: object) -> list[Any]:
    response = client.post(PATH, json={"model": model, "input": given, **members})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["object"], answer["model"], answer["usage"]) == ("list", model, None)
    assert [(item["object"], item["index"]) for item in answer["data"]] == [
        ("embedding", index) for index in range(len(answer["data"]))
    ]
    return [item["embedding"] for item in answer["data"]]


def rejection(client: TestClient[Litestar], model: str, given: object, **members: object) -> tuple[str, str | None]:
    response = client.post(PATH, json={"model": model, "input": given, **members})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error["param"], error["code"]


def test_usage_adds_up_the_tokens_that_the_model_counts(client: TestClient[Litestar]) -> None:
    answer = client.post(PATH, json={"model": "counted", "input": ["a", "b"]}).json()
    assert answer["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert len(answer["data"]) == 2


@pytest.mark.parametrize(
    ("model", "encoding", "message"),
    [
        ("counted", "float", "The model returned 2 vectors for 1 inputs"),
        *(
            ("broken", name, "The model returned a vector with NaN or infinity for input[0]")
            for name in ("float", "base64")
        ),
    ],
)
def test_vectors_that_cannot_be_right_are_a_failure_of_the_model(
    client: TestClient[Litestar], model: str, encoding: str, message: str
) -> None:
    response = client.post(PATH, json={"model": model, "input": ["a"], "encoding_format": encoding})
    assert (response.status_code, response.json()["error"]["message"]) == (500, message)


@pytest.mark.parametrize("padding", [0, 300_000])
def test_rejected_request_is_reported_and_queued_under_the_name_of_its_model(padding: int) -> None:
    recorder = EventRecorder()
    engine = engine_of([model_source("counted"), model_source("flat")], load, recorder)
    with TestClient(app_of_protocol(engine, "openai")) as client:
        response = client.post(PATH, content=b'{"model": "counted", "input": 5}' + b" " * padding)
    assert response.status_code == 400
    (event,) = recorder.events
    assert event.model_name == "counted"


def test_images_in_data_uris_are_embedded(client: TestClient[Litestar]) -> None:
    assert embed(client, "colours", [RED, BLUE]) == [[250, 0, 10], [0, 10, 250]]
    assert embed(client, "colours", BLUE, dimensions=3) == [[0, 10, 250]]


@pytest.mark.parametrize("model", ["flat", "row", "brain", "pooled"])
def test_model_for_one_text_embeds_one(client: TestClient[Litestar], model: str) -> None:
    assert embed(client, model, "a text") == [[0.5, 2]]
    assert rejection(client, model, ["a", "b"]) == ("input", None)


@pytest.mark.parametrize(
    ("given", "param", "code"),
    [
        (["https://example.org/a.png"], "input[0]", "unsupported_image_url"),
        ("a red car", "input", "unsupported_image_url"),
        ([RED, "data:image/png;base64,AAAA"], "input[1]", None),
    ],
    ids=str,
)
def test_what_is_no_image_is_rejected_with_its_index(
    client: TestClient[Litestar], given: object, param: str, code: str | None
) -> None:
    assert rejection(client, "colours", given) == (param, code)


def test_other_dimensions_are_rejected_where_the_model_declares_none(client: TestClient[Litestar]) -> None:
    assert rejection(client, "brain", "a", dimensions=256) == ("dimensions", "unsupported_parameter")


@pytest.mark.parametrize("model", ["grid", "scores"])
def test_model_without_a_vector_is_rejected(client: TestClient[Litestar], model: str) -> None:
    assert rejection(client, model, "a") == ("model", "unsupported_model")


def test_embedding_models_are_listed_and_described(client: TestClient[Litestar]) -> None:
    listed = [model["id"] for model in client.get("/openai/v1/models").json()["data"]]
    assert listed == ["brain", "broken", "colours", "continuer", "counted", "embedder", "flat", "pooled", "row"]
    assert client.get("/openai/v1/models/colours").json()["object"] == "model"
    assert client.get("/openai/v1/models/grid").status_code == 400
