"""What users import from `charioteer`."""


def acme_greeting(name: str, greeting: str = "Hello") -> str:
    """Return a greeting for a person."""
    return f"{greeting} {name}"
