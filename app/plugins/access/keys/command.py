"""``charioteer keys``."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.types import PositiveFloat, PositiveInt
from cyclopts.validators import Number

from app.core.cli.terminal import console, table
from app.core.settings.environment import HELP_FLAGS, environment
from app.core.settings.server import SettingsError
from tasks.inference.error import InferenceError
from tasks.inference.request import validation_error

KeyFile = Annotated[Path, environment("CHARIOTEER_API_KEYS"), Parameter(name="--file")]

keys = App(name="keys", help_flags=HELP_FLAGS, help="Create, list and remove API keys.")


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
    """Create an API key and print it once: the file stores only its digest. Running servers accept it within a second.

    Args:
        name: Name of the key's owner, as shown in logs.
        file: Key file, the value of `charioteer serve --api-keys`; created if it does not exist.
        permissions: What the key permits: infer, read, label, admin, separated by commas.
        requests_per_second: Maximum request rate.
        burst: Maximum number of requests in a burst; by default, the requests of one second.
        days: Days until the key expires; never by default.
    """
    import msgspec

    from app.core.server.auth.api_keys import ApiKey
    from app.plugins.access.keys.key_file import add_key, new_key

    secret = new_key()
    fields: dict[str, object] = {
        "name": name,
        "sha256": "0" * 64,
        "permissions": [part.strip() for part in permissions.split(",") if part.strip()],
        "requests_per_second": requests_per_second,
        "burst": burst,
        "not_after": None if days is None else (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0),
    }
    try:
        key = msgspec.convert(fields, ApiKey)
    except msgspec.ValidationError as error:
        raise SettingsError(_option_error(name, permissions, validation_error(error))) from None
    add_key(file, secret, key)
    sys.stdout.write(f"{secret}\n")
    # Print this to standard error, so that standard output holds only the key.
    sys.stderr.write(f"This is shown once. {name} sends it as Authorization: Bearer <key>, or as X-API-Key\n")


@keys.command(name="list")
def list_keys(*, file: KeyFile) -> None:
    """List the keys of a file, with their owners and permissions.

    Args:
        file: Key file.
    """
    from app.core.server.auth.api_keys import read_keys
    from app.core.server.auth.watched_file import read_file

    listing = table("name", "permissions", "requests a second", "burst", "good until", "sha256")
    listing.box, listing.pad_edge = None, False
    now = datetime.now(UTC)
    for key in read_file(file, read_keys):
        rate = "" if key.requests_per_second is None else f"{key.requests_per_second:g}"
        until = "" if key.not_after is None else key.not_after.isoformat()
        if key.not_after is not None and key.not_after < now:
            until += " (expired)"
        burst = "" if key.burst is None else str(key.burst)
        listing.add_row(key.name, ", ".join(key.permissions), rate, burst, until, key.sha256[:12])
    console().print(listing)


@keys.command
def remove(name: str, *, file: KeyFile) -> None:
    """Remove a key from a file. Running servers reject it within a second.

    Args:
        name: Name of the key's owner.
        file: Key file.
    """
    from app.plugins.access.keys.key_file import remove_key

    remove_key(file, name)


def _option_error(name: str, permissions: str, error: InferenceError) -> str:
    field = error.path.partition("[")[0]
    if field == "permissions":
        return f"--permissions: expected infer, read, label or admin, separated by commas, got {permissions!r}"
    if field == "name":
        return f"Expected a name of letters, digits, dots, dashes and underscores, 64 at most, got {name!r}"
    return f"--{field.replace('_', '-')}: {error.message}" if field else error.message
