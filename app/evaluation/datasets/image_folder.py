"""Read classification datasets with one folder of images for each class."""

from pathlib import Path

from app.evaluation.dataset import Dataset, Faults, Item
from app.evaluation.datasets.files import known_of, names_of, pictures_in, sidecar, size_of
from tasks.task import TaskType

__all__ = ("read_image_folder",)


def read_image_folder(path: Path, faults: Faults) -> Dataset:
    """Read the images under `path`; the name of the first folder under `path` is the class."""
    metadata = sidecar(path, faults)
    items: list[Item] = []
    labels = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = [(label, file) for label in labels for file in pictures_in(path / label)]
    names = names_of(file for _, file in files)
    for label, file in files:
        name = file.relative_to(path).as_posix()
        width, height = size_of(file, faults)
        if width:
            about = known_of(metadata, name, file, names)
            items.append(Item(id=name, image=file, width=width, height=height, label=label, metadata=about))
    held = {item.label for item in items}
    return Dataset(
        path=path,
        format="image-folder",
        tasks=(TaskType.IMAGE_CLASSIFICATION,),
        labels=tuple(label for label in labels if label in held),
        items=tuple(items),
        notes=faults.notes(),
    )
