"""The stores of recordings, of both kinds."""

from tests.plugins.recording.conftest import postgres_url, store, url

__all__ = ("postgres_url", "store", "url")
