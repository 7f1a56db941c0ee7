"""Check how a request or an answer is rejected."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tasks.inference.error import ErrorKind, InferenceError


@contextmanager
def rejects(
    match: str | None = None, path: str | None = None, kind: ErrorKind = ErrorKind.INVALID_REQUEST
) -> Generator[None]:
    """Check that an error of this kind is raised, whose text matches a pattern; None accepts any path."""
    with pytest.raises(InferenceError, match=match) as caught:
        yield
    assert caught.value.kind is kind
    assert path in (None, caught.value.path)


@contextmanager
def rejects_answer(text: str) -> Generator[None]:
    """Check that the answer of a model is rejected with a short message that contains `text`."""
    with pytest.raises(InferenceError) as caught:
        yield
    assert caught.value.kind is ErrorKind.MODEL_FAILED
    assert text in str(caught.value)
    assert len(str(caught.value)) < 400
