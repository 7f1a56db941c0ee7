"""Collect the information in a model's files."""

from pathlib import Path

import msgspec

from app.core.plugins import registry
from app.core.runtimes.label_files import declared_labels, find_label_file, read_label_file
from app.core.runtimes.onnxruntime.files.hugging_face import Config, Preprocessor, read_json
from app.core.runtimes.onnxruntime.files.metadata import ULTRALYTICS_TASKS, ExportMetadata, read_metadata
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelError, ModelSettings, ModelSource
from metadata.model import Origin
from tasks.task import TaskType

_ARCHITECTURES = {
    "ForImageClassification": TaskType.IMAGE_CLASSIFICATION,
    "ForObjectDetection": TaskType.OBJECT_DETECTION,
    "ForSemanticSegmentation": TaskType.IMAGE_SEGMENTATION,
}
"""Suffixes of the names of transformers' classes."""


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about a model before its graph runs.

    Attributes:
        declared_labels: the labels in the settings, or in the file that the settings name.
        label_file: name of the label file in the settings, or else beside the model; "" without one.
        file_labels: the labels in a label file beside the model.
    """

    file: Path
    settings: ModelSettings
    metadata: ExportMetadata
    config: Config | None = None
    preprocessor: Preprocessor | None = None
    declared_labels: tuple[str, ...] | None = None
    label_file: str = ""
    file_labels: tuple[str, ...] | None = None

    @property
    def labels(self) -> tuple[tuple[str, ...], Origin] | None:
        """Return the labels that the settings or the model's files list, with their origin; None if none do.

        Raises:
            ModelError: if they are not valid Unicode.
        """
        config_labels = self.config.labels if self.config else None
        # The labels that transformers writes if it knows none.
        is_named = config_labels != tuple(f"LABEL_{number}" for number in range(len(config_labels or ())))
        candidates = (
            (self.declared_labels, Origin.DECLARED),
            (self.metadata.names, Origin.MODEL_FILE),
            (config_labels if is_named else None, Origin.CONFIG),
            (self.file_labels, Origin.LABEL_FILE),
            (config_labels, Origin.CONFIG),
        )
        found = next(((labels, origin) for labels, origin in candidates if labels), None)
        try:
            "".join(found[0] if found else ()).encode()
        except UnicodeEncodeError as error:
            raise self.error(f"its labels are not valid Unicode: {error.reason}") from None
        return found

    @property
    def ultralytics_task(self) -> TaskType | None:
        """Return the task in Ultralytics' metadata; None for files of other exporters."""
        return ULTRALYTICS_TASKS.get(self.metadata.task or "")

    def declared_task(self) -> tuple[TaskType | None, Origin]:
        """Return the task that the settings or files declare, with its origin; None if none do.

        Raises:
            ModelError: for an unknown task.
        """
        if self.settings.task_type is not None:
            return self.settings.task_type, Origin.DECLARED
        if self.ultralytics_task is not None:
            return self.ultralytics_task, Origin.MODEL_FILE
        if self.metadata.task is not None:
            raise self.error(
                f"its metadata declares the task {self.metadata.task!r}; "
                "supported are classify, detect, obb, segment, semantic and pose"
            )
        for architecture in (self.config.architectures or ()) if self.config else ():
            for ending, task_type in _ARCHITECTURES.items():
                if architecture.endswith(ending):
                    return task_type, Origin.CONFIG
            if "For" in architecture:
                endings = ", ".join(f"...{ending}" for ending in _ARCHITECTURES)
                raise self.error(
                    f"its config.json names the architecture {architecture}; of the architectures in Hugging Face's "
                    f"ONNX layout, {endings} are supported"
                )
        return None, Origin.SHAPES

    def error(self, reason: str) -> ModelError:
        """Return a `ModelError` whose message starts with the file."""
        return ModelError(f"{self.file}: {reason}")


def read_model_files(source: ModelSource, session: GraphSession) -> ModelFiles:
    """Read the settings, the metadata of the graph, the Hugging Face files and a label file.

    Raises:
        ModelError: if one of them cannot be read.
    """
    labels, file_labels = source.settings.labels, None
    described = (layout.describe(source, session) for layout in registry().layouts)
    contract = next((metadata for metadata in described if metadata is not None), None)
    metadata = contract or read_metadata(session.file, session.metadata)
    label_file = Path(labels) if isinstance(labels, str) else None
    if labels is None and metadata.names is None:
        label_file = find_label_file(source, session.file.parent)
        file_labels = None if label_file is None else read_label_file(label_file, source)
    # Exports may put the graph into the subfolder "onnx", and the files of Hugging Face beside it or above.
    folders = () if contract else (session.file.parent, source.folder)
    return ModelFiles(
        file=session.file,
        settings=source.settings,
        metadata=metadata,
        config=read_json(Config, *(folder / "config.json" for folder in folders)),
        preprocessor=read_json(Preprocessor, *(folder / "preprocessor_config.json" for folder in folders)),
        declared_labels=declared_labels(source),
        label_file=label_file.name if label_file else "",
        file_labels=file_labels,
    )
