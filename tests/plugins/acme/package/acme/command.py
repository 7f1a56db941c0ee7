"""``charioteer acme-greet``."""

from acme.words import acme_greeting


def greet(name: str = "world") -> None:
    """Print a greeting.

    Args:
        name: Whom to greet.
    """
    print(acme_greeting(name))  # noqa: T201
