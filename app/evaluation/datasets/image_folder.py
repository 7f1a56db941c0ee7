"""Read classification datasets with one folder of images for each class."""

from pathlib import Path

from app.evaluation.dataset import Dataset, Item, LabelErrors
from app.evaluation.datasets.files import count_names, list_images, read_item, read_sidecar, sidecar_row
from tasks.task import TaskType


def read_image_folder(path: Path, errors: LabelErrors) -> Dataset:
    """Read the images under `path`; the name of the first folder under `path` is the class."""
    metadata = read_sidecar(path, errors)
    items: list[Item] = []
    labels = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = [(label, file) for label in labels for file in list_images(path / label)]
    names = count_names(file for _, file in files)
    for label, file in files:
        name = file.relative_to(path).as_posix()
        row = sidecar_row(metadata, name, file, names)
        if item := read_item(name, file, errors, label=label, metadata=row):
            items.append(item)
    used_labels = {item.label for item in items}
    return Dataset(
        path=path,
        format="image-folder",
        tasks=(TaskType.IMAGE_CLASSIFICATION,),
        labels=tuple(label for label in labels if label in used_labels),
        items=tuple(items),
        notes=errors.notes(),
    )
