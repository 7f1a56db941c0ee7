"""Python classes that follow MAITE's protocols."""

CLASSIFIER = """
    class Model:
        metadata = {"id": "brightness", "index2label": {0: "dark", 1: "bright"}}
        def __call__(self, batch):
            assert all(image.shape == (3, 48, 64) for image in batch)
            return [[1 - image.mean() / 255, image.mean() / 255] for image in batch]
"""
