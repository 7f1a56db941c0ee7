"""Environment variables of options."""

from cyclopts import Parameter

__all__ = ("environment",)


def environment(*names: str) -> Parameter:
    """Return a parameter that reads an option from environment variables; the first one that is set wins."""
    return Parameter(env_var=names)
