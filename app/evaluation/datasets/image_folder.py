"""Classification as folders: a folder for each class, images in it."""

from pathlib import Path

from app.evaluation.dataset import Dataset, Faults, Item
from app.evaluation.datasets.files import known_of, names_of, pictures_in, sidecar, size_of
from tasks.task import TaskType

__all__ = ("read_image_folder",)


def read_image_folder(path: Path, faults: Faults) -> Dataset:
    """The images under `path`; the class of each is the name of the folder just under `path` that it lies in."""
    metadata = sidecar(path, faults)
    items: list[Item] = []
    labels = sorted(each.name for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    pictures = [(label, picture) for label in labels for picture in pictures_in(path / label)]
    names = names_of(picture for _, picture in pictures)
    for label, picture in pictures:
        name = picture.relative_to(path).as_posix()
        width, height = size_of(picture, faults)
        if width:
            about = known_of(metadata, name, picture, names)
            items.append(Item(id=name, image=picture, width=width, height=height, label=label, metadata=about))
    held = {item.label for item in items}
    return Dataset(
        path=path,
        format="image-folder",
        tasks=(TaskType.IMAGE_CLASSIFICATION,),
        labels=tuple(label for label in labels if label in held),
        items=tuple(items),
        notes=faults.notes(),
    )
