"""The stores of recordings, of both kinds."""

from tests.plugins.recording.conftest import postgres, postgres_url, store, url

__all__ = ("postgres", "postgres_url", "store", "url")
