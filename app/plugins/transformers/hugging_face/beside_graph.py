"""Read what Hugging Face files declare about the ONNX graph beside them."""

from collections.abc import Sequence
from pathlib import Path

from app.core.runtimes.onnxruntime.files.model_files import FolderMetadata
from app.core.runtimes.onnxruntime.images.preprocessing import PartialPreprocessing
from app.core.settings.model import ModelError
from app.plugins.transformers.hugging_face.files import (
    Config,
    Preprocessor,
    processor_preprocessing,
    processor_size,
    read_json,
    removed_task,
    timm_preprocessing,
)
from metadata.model import Origin
from tasks.task import TaskType

_TASKS = {
    "ForImageClassification": TaskType.IMAGE_CLASSIFICATION,
    "ForObjectDetection": TaskType.OBJECT_DETECTION,
    "ForSemanticSegmentation": TaskType.IMAGE_SEGMENTATION,
}
"""By the endings of the names of transformers' classes."""
_MULTI_LABEL = "multi_label_classification"


def read_folders(folders: Sequence[Path]) -> FolderMetadata | None:
    """Read ``config.json`` and ``preprocessor_config.json``, each in the first of the folders that has it.

    Return None if no folder has one of them.

    Settings of the model may replace files that cannot be read.
    """
    try:
        config = read_json(Config, *(folder / "config.json" for folder in folders))
        preprocessor = read_json(Preprocessor, *(folder / "preprocessor_config.json" for folder in folders))
    except ModelError as error:
        return FolderMetadata(error=str(error))
    return None if config is None and preprocessor is None else describe(config or Config(), preprocessor)


def describe(config: Config, preprocessor: Preprocessor | None = None) -> FolderMetadata:
    """Return what the files declare."""

    def preprocessing(task_type: TaskType) -> PartialPreprocessing | None:
        return processor_preprocessing(preprocessor, task_type) or timm_preprocessing(config)

    task_type, task_error = _task(config.architectures or ())
    if task_type is None and config.pretrained_cfg is not None and config.num_classes is not None:
        # timm sets 0 for a network that returns features.
        task_type = TaskType.TENSOR if config.num_classes == 0 else TaskType.IMAGE_CLASSIFICATION
    return FolderMetadata(
        task_type=task_type,
        task_error=task_error,
        labels=config.labels,
        # The labels that transformers writes if it knows none.
        has_names=config.labels != tuple(f"LABEL_{number}" for number in range(len(config.labels or ()))),
        multi_label=config.problem_type == _MULTI_LABEL,
        model_type=config.model_type or "",
        sizes=((processor_size(preprocessor), Origin.PREPROCESSOR), (config.size, Origin.CONFIG)),
        preprocessing=preprocessing,
    )


def _task(architectures: Sequence[str]) -> tuple[TaskType | None, str]:
    """Return the task of the first known class, or the reason why a class is not supported."""
    for architecture in architectures:
        for ending, task_type in _TASKS.items():
            if architecture.endswith(ending):
                return task_type, ""
        if "For" in architecture:
            endings = ", ".join(f"...{ending}" for ending in _TASKS)
            supported = f"of the architectures in Hugging Face's ONNX layout, {endings} are supported"
            return None, (
                f"its config.json names the architecture {architecture}; {removed_task([architecture]) or supported}"
            )
    return None, ""


READERS = (read_folders,)
