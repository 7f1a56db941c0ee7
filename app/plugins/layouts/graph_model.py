"""Images in and predictions out for a graph that the code of a Python model runs, with the layouts of ONNX files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.runtimes.onnxruntime.heads import task_and_model
from app.core.runtimes.onnxruntime.inspection import inspect_model
from app.core.settings.model import ModelError, ModelSource, read_settings
from metadata.model import Fact
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TaskType
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

Run = Callable[[NDArray[np.float32]], Sequence[ArrayLike] | Mapping[str, ArrayLike]]
"""Takes a batch in the shape of the input, and returns all outputs, in order or by name."""

_TASKS = (
    TaskType.IMAGE_CLASSIFICATION,
    TaskType.OBJECT_DETECTION,
    TaskType.ORIENTED_OBJECT_DETECTION,
    TaskType.IMAGE_SEGMENTATION,
)
_DATATYPES = tuple(datatype for datatype in Datatype if datatype not in (Datatype.BF16, Datatype.BYTES))


class GraphModel:
    """A graph of any framework whose images and outputs are handled as for an ONNX file.

    Labels, the layout and the preprocessing come from `folder`: its ``model-settings.json``, ``config.json``,
    ``preprocessor_config.json`` and label files. Everything else is inferred from the outputs for a blank image. Raise
    ModelError if the outputs have no known layout. The message explains what to declare.

    Args:
        folder: the model's folder.
        run: runs the graph on a batch.
        input_shape: (batch, 3, height, width) or (batch, height, width, 3), float32; -1 for any size.
    """

    def __init__(self, folder: Path, run: Run, input_shape: Sequence[int]) -> None:
        source = ModelSource(name=folder.name, version="1", folder=folder, settings=read_settings(folder))
        session = _CallableSession(folder / "model.py", run, tuple(int(side) for side in input_shape))
        inspection = inspect_model(source, session)
        if inspection.match.task_type not in _TASKS:
            raise ModelError(f"{folder}: Expected one of {', '.join(_TASKS)}, got {inspection.match.task_type}")
        self.description = inspection.description
        _, self._model, self._example = task_and_model(inspection)

    def predict(self, image: NDArray[np.uint8], parameters: SelectionParameters | None = None) -> Any:
        """Return the prediction for one (height, width, 3) RGB image, in the type of its task.

        Raise MODEL_FAILED if the outputs differ from those for the blank image.
        """
        changes: dict[str, Any] = {"image": Image(image)}
        if parameters is not None:
            changes |= {"parameters": parameters, "floor": parameters.score_threshold}
        (prediction,) = self._model([msgspec.structs.replace(self._example, **changes)])
        return prediction


class _CallableSession:
    """A `GraphSession` that calls a function."""

    def __init__(self, file: Path, run: Run, input_shape: tuple[int, ...]) -> None:
        self.file = file
        self.inputs = (TensorSpec(name="images", datatype=Datatype.FP32, shape=input_shape),)
        self.metadata: Mapping[str, str] = {}
        self.facts: Sequence[Fact] = ()
        self.copies = 1
        self._run = run
        # The first run, on a blank image, shows the outputs.
        self.outputs: tuple[TensorSpec, ...] = ()

    def check_memory(self, feeds: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: the shapes of the inputs are declared."""

    def run(self, feeds: Mapping[str, NDArray[Any]], names: Sequence[str] | None = None) -> list[NDArray[Any]]:
        (batch,) = feeds.values()
        answer = self._run(batch)
        arrays = (
            dict(answer) if isinstance(answer, Mapping) else {f"output{n}": array for n, array in enumerate(answer)}
        )
        outputs = {name: np.asarray(array) for name, array in arrays.items()}
        if not self.outputs:
            self.outputs = tuple(map(_spec, outputs, outputs.values()))
        return [outputs[name] for name in names or outputs]


def _spec(name: str, array: NDArray[Any]) -> TensorSpec:
    datatype = next((datatype for datatype in _DATATYPES if datatype.dtype == array.dtype), None)
    if datatype is None:
        raise ModelError(f"The output {name!r} has the datatype {array.dtype}, which is not supported")
    return TensorSpec(name=name, datatype=datatype, shape=array.shape)
