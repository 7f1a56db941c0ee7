"""Read DOTA's text labels of oriented boxes: ``x1 y1 x2 y2 x3 y3 x4 y4 category difficult``, in pixels.

A file may begin with lines ``imagesource:...`` and ``gsd:...``, which become metadata of the image.
"""

from pathlib import Path

from app.evaluation.dataset import Dataset, Faults, Item, LabelledObject
from app.evaluation.datasets.files import area_of, lines_of, numbers, pictures_in, sidecar, size_of
from app.evaluation.extras import EvaluationError
from tasks.exchange.error import brief
from tasks.task import TaskType

__all__ = ("label_folder", "read_dota")

_HEADERS = ("imagesource", "gsd")
_CORNERS = 8


def label_folder(path: Path) -> Path | None:
    """Return the folder of labels in `path`, or None if it is not a DOTA dataset."""
    found = sorted(entry for entry in path.glob("labelTxt*") if entry.is_dir())
    return found[0] if found else None


def read_dota(path: Path, faults: Faults, images: Path | None = None) -> Dataset:
    """Read the images of ``images/`` and the labels of ``labelTxt/``. Difficult objects are ignored objects.

    Args:
        path: the folder that contains both.
        faults: collects faults.
        images: another folder of images, if any.

    Raises:
        EvaluationError: when there is no folder of labels.
    """
    folder = label_folder(path)
    if folder is None:
        raise EvaluationError(f"{path}: Expected a folder labelTxt with DOTA's labels, got none")
    metadata = sidecar(path, faults)
    root = images or (path / "images" if (path / "images").is_dir() else path)
    files: dict[str, Path] = {}
    for file in pictures_in(root):
        if file.stem in files:
            faults.add(str(file), f"there is {files[file.stem]} of the same name")
        files.setdefault(file.stem, file)
    for orphan in sorted({file.stem for file in folder.glob("*.txt")} - set(files)):
        faults.add(str(folder / f"{orphan}.txt"), "there is no image of that name")
    items: list[Item] = []
    for stem, file in files.items():
        labels = folder / f"{stem}.txt"
        if not labels.is_file():
            faults.add(str(file), f"there are no labels {labels}")
            continue
        objects, about = _read(labels, faults)
        width, height = size_of(file, faults)
        if width:
            known = metadata.get(file.name, {})
            items.append(
                Item(
                    id=file.name,
                    image=file,
                    width=width,
                    height=height,
                    objects=tuple(objects),
                    metadata={**about, **known},
                )
            )
    notes = list(faults.notes())
    difficult = sum(label.ignored for item in items for label in item.objects)
    if difficult:
        notes.append(f"{difficult} difficult objects are neither to be found nor wrong to find")
    return Dataset(
        path=path,
        format="dota",
        tasks=(TaskType.ORIENTED_OBJECT_DETECTION,),
        labels=tuple(sorted({label.label for item in items for label in item.objects})),
        items=tuple(items),
        notes=tuple(notes),
    )


def _read(path: Path, faults: Faults) -> tuple[list[LabelledObject], dict[str, str]]:
    objects: list[LabelledObject] = []
    about: dict[str, str] = {}
    for place, line in lines_of(path):
        key, colon, value = line.partition(":")
        if colon and key.lower() in _HEADERS:
            about[key.lower()] = value.strip()
        elif (read := _object(place, line.split(), faults)) is not None:
            objects.append(read)
    return objects, about


def _object(place: str, words: list[str], faults: Faults) -> LabelledObject | None:
    if len(words) not in (_CORNERS + 1, _CORNERS + 2):
        expected = "8 coordinates, a category and 0 or 1 for difficult"
        faults.add(place, f"Expected {expected}, got {len(words)} words: {brief(' '.join(words))}")
        return None
    values = numbers(words[:_CORNERS], place, faults)
    if values is None:
        return None
    if words[_CORNERS + 1 :] not in ([], ["0"], ["1"], ["2"]):
        faults.add(place, f"Expected 0 or 1 for difficult, got {brief(words[-1])}")
        return None
    corners = tuple(zip(values[::2], values[1::2], strict=True))
    if not area_of(corners):
        faults.leave_out(place)
        return None
    ignored = words[_CORNERS + 1 :] not in ([], ["0"])
    return LabelledObject(label=words[_CORNERS], corners=corners, ignored=ignored, place=place)
