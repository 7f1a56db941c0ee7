"""Where options are read from when they are not given."""

from cyclopts import Parameter

__all__ = ("environment",)


def environment(*names: str) -> Parameter:
    """The variables that hold an option, the first that is set before the others."""
    return Parameter(env_var=names)
