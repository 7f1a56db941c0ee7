"""``charioteer acme-greet``."""


def greet(name: str = "world") -> None:
    """Print a greeting.

    Args:
        name: Whom to greet.
    """
    print(f"Hello {name}")  # noqa: T201
