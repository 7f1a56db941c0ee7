"""The error message for a missing extra."""


def missing_extra(feature: str, extra: str, error: ImportError) -> str:
    """Return the message that names the extra to install.

    Args:
        feature: the option or command that needs it.
        extra: its name in pyproject.toml.
        error: the failed import.
    """
    return f"{feature} needs the extra {extra}, pip install 'charioteer[{extra}]' ({error})"
