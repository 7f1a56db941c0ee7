"""FastAPI, in the shape of Striveworks' public engines: a synchronous handler of pydantic models."""

import base64
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tests.benchmarks.serving.others.pipeline import pipeline

app = FastAPI()
model = pipeline()


class Input(BaseModel):
    name: str
    shape: list[int]
    datatype: str
    data: list[str]
    parameters: dict[str, Any] | None = None


class Request(BaseModel):
    id: str | None = None
    inputs: list[Input]


@app.get("/ready")
def ready() -> dict[str, str]:
    return {"status": "ready"}


@app.post("/infer")
def infer(request: Request) -> dict[str, Any]:
    images = [base64.b64decode(tensor.data[0]) for tensor in request.inputs]
    outputs = [
        {"name": tensor.name, "shape": [1], "datatype": "BYTES", "data": [model.answer(image)]}
        for tensor, image in zip(request.inputs, images, strict=True)
    ]
    return {"id": request.id, "outputs": outputs}
