"""What version 0.2 had and 0.3 has no more, with what to use instead. Version 0.4 removes this table."""

from fnmatch import fnmatchcase

REMOVED = {
    **dict.fromkeys(
        (f"/v2/models/*/{name}" for name in ("generate", "generate_stream")),
        "use /openai/v1/chat/completions, with `stream` for parts",
    ),
    **dict.fromkeys(("/v1/completions", "/openai/v1/completions"), "send the text to /openai/v1/chat/completions"),
    "application/cloudevents+json": "send the data of the event as the body, and its attributes as ce- headers",
    "/docs": "read the OpenAPI document at /schema with a viewer of your choice",
    "/monitoring/prometheus/metrics": 'read /metrics of the main port, with protocol="tensorflow-serving"',
    "/page/tensorflow-serving/*": "send the request to TensorFlow Serving's port, --tensorflow-serving-port",
    "/page/repository*": "use /v2/repository/index and /v2/repository/models/<name>/load, or unload",
    "/page/events": "read /metrics; deploy/grafana/charioteer.json is a dashboard of it",
    **dict.fromkeys(
        (f"conform --protocol {name}" for name in ("tensorflow-serving", "grps", "openai", "label-studio")),
        "`conform` checks the protocols of Chariot and KServe",
    ),
    "conform --html": "write the report with `--json`; the table is for people",
    "conform --junit": "use the exit code of `charioteer conform` in CI, and `--json` for details",
    **dict.fromkeys(
        ("evaluate --out", "evaluate --fresh"),
        "`charioteer run` can be continued, and `evaluate --recorded` measures its results; --json and --html write "
        "reports",
    ),
    "evaluate --format vqa": "send truths of recorded answers, and measure them with `evaluate --recorded STORE`",
    **dict.fromkeys(
        (
            f"{command} --protocol {name}"
            for command in ("evaluate", "run")
            for name in ("tensorflow-serving", "grps", "grps-grpc")
        ),
        "ask the same server over another protocol, such as chariot-v2-kserve or v2-grpc",
    ),
    "explain --prompt": "images and rows are explained; a Python class with `explain` explains its own answers",
    "explain --json": "send the image to :explain of KServe V1, which answers with JSON",
    "explain --text": "send the text to :explain of KServe V1",
    "export --format": "`charioteer export` writes ONNX; `as_maite` makes a model of MAITE of any served model",
    **dict.fromkeys(
        ("init --from", "init --file", "init --size"),
        "copy the recipe of docs/python_models.md#recipes into the folder of the model",
    ),
    "inferences --box": "export with `--to found.parquet`, and select places with DuckDB (docs/recording.md)",
    "inferences --format csv": "export with `--to found.parquet`; DuckDB writes CSV from it (docs/recording.md)",
    "inferences --pick": "take the newest matches with `--limit`",
    "inferences --sql": "export with `--to found.parquet`, and query it with DuckDB (docs/recording.md)",
    "/inferences/truths": "send PUT to /inferences/<id>/truth, or run `charioteer truth import STORE FILE`",
    "predict --tile": "use `--parameter tile=640`",
    **dict.fromkeys(("predict --overlap", "predict --max-tiles"), 'declare "tiling" in model-settings.json'),
    "predict --no-show": "leave it out, terminals show no images",
    "predict --show": "write the image to a file with `--draw`",
    "tune": "compare settings with `charioteer run`, which shows the images a second (docs/performance.md)",
    **dict.fromkeys(
        ("task type TEXT_CLASSIFICATION", "task type TOKEN_CLASSIFICATION"),
        "serve the model with KServe's Hugging Face server or vLLM, or declare TENSOR for an ONNX graph of its token "
        "ids",
    ),
    "layout scrfd": "read its outputs in a Python class (docs/python_models.md), or use YuNet or BlazeFace for faces",
    **dict.fromkeys(("layout rt-detr", "layout torchvision"), "declare detections, which reads the same outputs"),
    "setting compile": "leave it out: models of transformers are not compiled; `charioteer export` makes ONNX of many",
    "serve --drift-webhook": "let Prometheus alert on `charioteer_drift_detected` (deploy/prometheus/alerts.yaml)",
    "serve --loading-status": "wait for /ready; a model that loads gets 404, as from TensorFlow Serving",
    "serve --page-admin": "give --api-keys: the page loads and unloads models for keys with `admin`",
    "truth --spread": "leave it out: a label that names an image is the truth of all its inferences",
    "shadow --slice": "measure slices of the recorded answers with `charioteer evaluate --recorded STORE --slice`",
    "shadow --cluster": "compare slices of the images with `charioteer evaluate --slice`",
}
"""Sentences by name: ``tune``, ``inferences --sql``, ``run --protocol grps``, ``setting mlflow``, ``layout rt-detr``,
``task type TEXT_CLASSIFICATION``, a content type, or a path such as ``/v2/models/*/generate``.

An option of `serve` is also looked up for its environment variable and its key in the file of ``--config``.
"""


def removed_advice(*names: str) -> str:
    """Return a sentence that says which of `names` was removed, the first one, and what to use; "" without one."""
    for name in names:
        for removed, advice in REMOVED.items():
            if removed == name or (name.startswith("/") and fnmatchcase(name, removed)):
                return f"{name} was removed in version 0.3: {advice}"
    return ""
