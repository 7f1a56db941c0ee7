"""``charioteer keys``."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.types import PositiveFloat, PositiveInt
from cyclopts.validators import Number
from rich.table import Table

from app.cli.terminal import console
from app.settings.environment import environment
from app.settings.server import SettingsError

__all__ = ("keys",)

KeyFile = Annotated[Path, environment("CHARIOTEER_API_KEYS"), Parameter(name="--file")]

keys = App(name="keys", help="Make, list and remove the keys that callers of a server show.")


@keys.command
def add(
    name: str,
    *,
    file: KeyFile,
    permissions: str = "infer",
    requests_per_second: PositiveFloat | None = None,
    burst: PositiveInt | None = None,
    days: Annotated[float | None, Parameter(validator=Number(gt=0, lte=36_500))] = None,
) -> None:
    """Make a key and print it, once: the file has its digest alone. A server that runs knows it within a second.

    Args:
        name: Whose it is, as the logs will call them.
        file: The file, as `charioteer serve --api-keys` is given it; made where there is none.
        permissions: What it is good for: infer, read, admin, with commas between them.
        requests_per_second: How often it may be used.
        burst: So many of them at once after a pause; as many as in a second when absent.
        days: How long it is good; for ever when absent.
    """
    import msgspec

    from app.server.access.key_file import add_key, new_key
    from app.server.access.keys import Key

    key = new_key()
    described: dict[str, object] = {
        "name": name,
        "sha256": "0" * 64,
        "permissions": [each.strip() for each in permissions.split(",") if each.strip()],
        "requests_per_second": requests_per_second,
        "burst": burst,
        "not_after": None if days is None else (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0),
    }
    try:
        wanted = msgspec.convert(described, Key)
    except msgspec.ValidationError as error:
        raise SettingsError(_explained(name, permissions, str(error))) from None
    add_key(file, key, wanted)
    sys.stdout.write(f"{key}\n")
    # Not beside the key, which goes where it is told to go.
    sys.stderr.write(f"This is shown once. {name} sends it as Authorization: Bearer <key>, or as X-API-Key\n")


@keys.command(name="list")
def list_keys(*, file: KeyFile) -> None:
    """List the keys of a file: whose they are and what they are good for.

    Args:
        file: The file.
    """
    from app.server.access.key_file import keys_of

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "permissions", "requests a second", "burst", "good until", "sha256"):
        table.add_column(title)
    now = datetime.now(UTC)
    for each in keys_of(file):
        rate = "" if each.requests_per_second is None else f"{each.requests_per_second:g}"
        until = "" if each.not_after is None else each.not_after.isoformat()
        if each.not_after is not None and each.not_after < now:
            until += " (over)"
        burst = "" if each.burst is None else str(each.burst)
        table.add_row(each.name, ", ".join(each.permissions), rate, burst, until, each.sha256[:12])
    console().print(table)


@keys.command
def remove(name: str, *, file: KeyFile) -> None:
    """Take a key out of a file. A server that runs refuses it within a second.

    Args:
        name: Whose it is.
        file: The file.
    """
    from app.server.access.key_file import remove_key

    remove_key(file, name)


def _explained(name: str, permissions: str, fault: str) -> str:
    if "$.permissions" in fault:
        return f"--permissions: expected infer, read or admin, with commas between them, got {permissions!r}"
    if "$.name" in fault:
        return f"Expected a name of letters, digits, dots, dashes and underscores, 64 at most, got {name!r}"
    return fault
