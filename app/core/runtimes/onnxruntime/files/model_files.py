"""Collect the information in a model's files."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from app.core.plugins import registry
from app.core.runtimes.label_files import declared_labels, find_label_file, read_label_file
from app.core.runtimes.onnxruntime.files.metadata import ULTRALYTICS_TASKS, ExportMetadata, read_metadata
from app.core.runtimes.onnxruntime.images.preprocessing import PartialPreprocessing
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelError, ModelSettings, ModelSource
from metadata.model import Origin
from tasks.task import TaskType

_SIDES = range(256, 2049, 32)
"""Usual sides of the input of a detector, pixels."""


class FolderMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the files of a library beside a graph declare.

    Attributes:
        error: why the files cannot be read; "" if they can.
        task_error: why the files are of a task that no ONNX model has; "" if they are not.
        has_names: whether the labels are names, not numbers.
        multi_label: whether the classes of a classifier are independent.
        model_type: the library's name for the network.
        sizes: (height, width) of the input, pixels, and the file that declares it; the first that is not None holds.
        preprocessing: function of the task that returns the preprocessing, or None.
        origin: the file that declares the task and the labels.
    """

    task_type: TaskType | None = None
    error: str = ""
    task_error: str = ""
    labels: tuple[str, ...] | None = None
    has_names: bool = True
    multi_label: bool = False
    model_type: str = ""
    sizes: Sequence[tuple[tuple[int, int] | None, Origin]] = ()
    preprocessing: Callable[[TaskType], PartialPreprocessing | None] = lambda _: None
    origin: Origin = Origin.CONFIG


GraphFileReader = Callable[[Sequence[Path]], FolderMetadata | None]
"""Returns what files in the folders of a graph declare, the nearest folder first; None if there are no such files."""


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about a model before its graph runs.

    Attributes:
        declared_labels: the labels in the settings, or in the file that the settings name.
        label_file: name of the label file in the settings, or else beside the model; "" without one.
        file_labels: the labels in a label file beside the model.
        shown_size: (height, width) of the input for which a detector has the number of candidates of an output, pixels.
    """

    file: Path
    settings: ModelSettings
    metadata: ExportMetadata
    folder: FolderMetadata = FolderMetadata()
    declared_labels: tuple[str, ...] | None = None
    label_file: str = ""
    file_labels: tuple[str, ...] | None = None
    shown_size: tuple[int, int] | None = None

    @property
    def labels(self) -> tuple[tuple[str, ...], Origin] | None:
        """Return the labels that the settings or the model's files list, with their origin; None if none do.

        Raise ModelError if they are not valid Unicode, or if a file cannot be read and no higher source lists labels.
        """
        if not self.declared_labels and not self.metadata.names:
            self.metadata.require_readable("names", '"labels"')
            self._require_folder()
        candidates = (
            (self.declared_labels, Origin.DECLARED),
            (self.metadata.names, Origin.MODEL_FILE),
            (self.folder.labels if self.folder.has_names else None, self.folder.origin),
            (self.file_labels, Origin.LABEL_FILE),
            (self.folder.labels, self.folder.origin),
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

        Raise ModelError for an unknown task, or if the files of a library cannot be read.
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
        self._require_folder()
        if self.folder.task_error:
            raise self.error(self.folder.task_error)
        return self.folder.task_type, Origin.SHAPES if self.folder.task_type is None else self.folder.origin

    def preprocessing_of_folder(self, task_type: TaskType) -> PartialPreprocessing | None:
        """Return the preprocessing in the files of a library; None if they have none.

        Raise ModelError if they cannot be read, unless the settings declare everything.
        """
        declared = self.settings.preprocessing
        if None in (declared.resize, declared.scale, declared.mean, declared.std):
            self._require_folder()
        return self.folder.preprocessing(task_type)

    def _require_folder(self) -> None:
        if self.folder.error:
            raise ModelError(self.folder.error)

    def error(self, reason: str) -> ModelError:
        """Return a `ModelError` whose message starts with the file."""
        return ModelError(f"{self.file}: {reason}")


def read_model_files(source: ModelSource, session: GraphSession) -> ModelFiles:
    """Read the settings, the metadata of the graph, the files of a library and a label file.

    Raise ModelError if one of them cannot be read that no higher source replaces.
    """
    labels, file_labels = source.settings.labels, None
    described = (layout.describe(source, session) for layout in registry().layouts)
    contract = next((metadata for metadata in described if metadata is not None), None)
    metadata = contract or read_metadata(session.file, session.metadata)
    # Exports may put the graph into the subfolder "onnx", and the other files beside it or above.
    folders = () if contract else (session.file.parent, source.folder)
    found = (read(folders) for read in registry().graph_files)
    folder = next((files for files in found if files is not None), FolderMetadata())
    label_file = Path(labels) if isinstance(labels, str) else None
    if labels is None and metadata.names is None and not (folder.labels and folder.has_names):
        label_file = find_label_file(source, session.file.parent)
        file_labels = None if label_file is None else read_label_file(label_file, source)
    return ModelFiles(
        file=session.file,
        settings=source.settings,
        metadata=metadata,
        folder=folder,
        declared_labels=declared_labels(source),
        label_file=label_file.name if label_file else "",
        file_labels=file_labels,
        shown_size=_shown_size(session),
    )


def _shown_size(session: GraphSession) -> tuple[int, int] | None:
    """Return the size of the input for which a YOLO has as many candidates as the first output, None without one."""
    count = max(session.outputs[0].shape[1:]) if session.outputs and len(session.outputs[0].shape) == 3 else -1
    cells = {side: sum((side // stride) ** 2 for stride in (8, 16, 32)) for side in _SIDES}
    sides = (side for side in _SIDES if count in (cells[side], 3 * cells[side]))
    return next(((side, side) for side in sides), None)
