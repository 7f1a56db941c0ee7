"""Operations of an OpenAPI document as parameters of a test."""

from typing import Any

import pytest


def operations_of(schema: Any) -> list[Any]:
    """Return a parameter for each operation, with its method and path as id.

    Schemathesis's own parametrization gives all operations of a test the same id, and pytest-xdist drops tests whose
    id occurs twice when it distributes files.
    """
    operations = [result.ok() for result in schema.get_all_operations()]
    return [pytest.param(operation, id=operation.label) for operation in operations]
