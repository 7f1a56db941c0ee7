"""Holds Kubernetes resources against the models of KServe's own SDK: run with the interpreter of the client `kserve`.

Reads a JSON array of resources from standard input, and writes an array with the faults of each.
"""

import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

kserve: Any = importlib.import_module("kserve.models")
kubernetes: Any = importlib.import_module("kubernetes.client")

_KINDS: Mapping[tuple[str, str], Any] = {
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): kserve.V1alpha1ClusterServingRuntime,
    ("serving.kserve.io/v1beta1", "InferenceService"): kserve.V1beta1InferenceService,
    ("networking.k8s.io/v1", "NetworkPolicy"): kubernetes.V1NetworkPolicy,
    ("policy/v1", "PodDisruptionBudget"): kubernetes.V1PodDisruptionBudget,
}
_PLAIN: Mapping[str, type | tuple[type, ...]] = {
    "bool": bool, "float": (int, float), "int": int, "ResourceQuantity": (str, int), "str": str,
}  # fmt: skip
_LIST = re.compile(r"(?:list|List)\[(?P<each>.*)\]")
_MAPPING = re.compile(r"(?:dict|Dict)[(\[]str, ?(?P<each>.*)[)\]]")


def main() -> None:
    json.dump([list(_of_resource(each)) for each in json.load(sys.stdin)], sys.stdout)


def _of_resource(resource: dict[str, Any]) -> Iterator[str]:
    kind = _KINDS.get((resource.get("apiVersion", ""), resource.get("kind", "")))
    if kind is None:
        yield f"{resource.get('apiVersion')} {resource.get('kind')}: unknown kind"
    else:
        yield from _of_model(resource, kind, str(resource["kind"]))
        if not resource.get("metadata", {}).get("name"):
            yield f"{resource['kind']}.metadata.name: missing"


def _of(value: Any, wanted: str, place: str) -> Iterator[str]:
    if found := _LIST.fullmatch(wanted):
        if not isinstance(value, list):
            yield f"{place}: not a list"
            return
        for index, each in enumerate(cast("list[Any]", value)):
            yield from _of(each, found["each"], f"{place}[{index}]")
    elif found := _MAPPING.fullmatch(wanted):
        if not isinstance(value, dict):
            yield f"{place}: not a mapping"
            return
        for key, each in cast("dict[str, Any]", value).items():
            yield from _of(each, found["each"], f"{place}.{key}")
    elif wanted in _PLAIN:
        if not isinstance(value, _PLAIN[wanted]) or (isinstance(value, bool) and wanted != "bool"):
            yield f"{place}: not {wanted}"
    elif wanted not in ("object", "datetime"):
        yield from _of_model(value, getattr(kserve, wanted, None) or getattr(kubernetes, wanted), place)


def _of_model(value: Any, model: Any, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place}: not a mapping"
        return
    fields = cast("dict[str, Any]", value)
    attributes = {name: attribute for attribute, name in model.attribute_map.items()}
    known = {name: each for name, each in fields.items() if name in attributes}
    for name in fields.keys() - known.keys():
        yield f"{place}.{name}: unknown field"
    try:
        model(**{attributes[name]: each for name, each in known.items()})
    except ValueError as error:
        # A field that is missing, or a word that is not among those allowed.
        yield f"{place}: {error}"
    for name, each in known.items():
        yield from _of(each, model.openapi_types[attributes[name]], f"{place}.{name}")


if __name__ == "__main__":
    main()
