"""Validate Kubernetes resources with the models of KServe's SDK; run with the interpreter of the client `kserve`.

Reads a JSON array of resources from standard input, and writes an array with the errors of each.
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
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): kserve.V1alpha1ServingRuntime,
    ("serving.kserve.io/v1beta1", "InferenceService"): kserve.V1beta1InferenceService,
    ("apps/v1", "Deployment"): kubernetes.V1Deployment,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): kubernetes.V2HorizontalPodAutoscaler,
    ("v1", "Service"): kubernetes.V1Service,
    ("networking.k8s.io/v1", "NetworkPolicy"): kubernetes.V1NetworkPolicy,
    ("policy/v1", "PodDisruptionBudget"): kubernetes.V1PodDisruptionBudget,
}
_SCALARS: Mapping[str, type | tuple[type, ...]] = {
    "bool": bool, "float": (int, float), "int": int, "ResourceQuantity": (str, int), "str": str,
}  # fmt: skip
_LIST = re.compile(r"(?:list|List)\[(?P<item>.*)\]")
_MAPPING = re.compile(r"(?:dict|Dict)[(\[]str, ?(?P<item>.*)[)\]]")


def main() -> None:
    json.dump([list(_resource_errors(resource)) for resource in json.load(sys.stdin)], sys.stdout)


def _resource_errors(resource: dict[str, Any]) -> Iterator[str]:
    kind = _KINDS.get((resource.get("apiVersion", ""), resource.get("kind", "")))
    if kind is None:
        yield f"{resource.get('apiVersion')} {resource.get('kind')}: unknown kind"
    else:
        yield from _model_errors(resource, kind, str(resource["kind"]))
        if not resource.get("metadata", {}).get("name"):
            yield f"{resource['kind']}.metadata.name: missing"


def _value_errors(value: Any, type_name: str, path: str) -> Iterator[str]:
    if match := _LIST.fullmatch(type_name):
        if not isinstance(value, list):
            yield f"{path}: not a list"
            return
        for index, element in enumerate(cast("list[Any]", value)):
            yield from _value_errors(element, match["item"], f"{path}[{index}]")
    elif match := _MAPPING.fullmatch(type_name):
        if not isinstance(value, dict):
            yield f"{path}: not a mapping"
            return
        for key, member in cast("dict[str, Any]", value).items():
            yield from _value_errors(member, match["item"], f"{path}.{key}")
    elif type_name in _SCALARS:
        if not isinstance(value, _SCALARS[type_name]) or (isinstance(value, bool) and type_name != "bool"):
            yield f"{path}: not {type_name}"
    elif type_name not in ("object", "datetime"):
        yield from _model_errors(value, getattr(kserve, type_name, None) or getattr(kubernetes, type_name), path)


def _model_errors(value: Any, model: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: not a mapping"
        return
    fields = cast("dict[str, Any]", value)
    attributes = {name: attribute for attribute, name in model.attribute_map.items()}
    known = {name: member for name, member in fields.items() if name in attributes}
    for name in fields.keys() - known.keys():
        yield f"{path}.{name}: unknown field"
    try:
        model(**{attributes[name]: member for name, member in known.items()})
    except ValueError as error:
        # A missing field, or a value that is not allowed.
        yield f"{path}: {error}"
    for name, member in known.items():
        yield from _value_errors(member, model.openapi_types[attributes[name]], f"{path}.{name}")


if __name__ == "__main__":
    main()
