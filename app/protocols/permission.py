"""The permissions that protocols require of clients."""

from typing import Literal

Permission = Literal["open", "infer", "read", "admin"]
"""``infer``: run models and read their metadata. ``read``: see recordings and other server data. ``admin``: change
what is served. ``open``: no permission, for health probes. None of them includes another."""

PERMISSIONS: tuple[Permission, ...] = ("infer", "read", "admin")
"""The permissions that can be granted to a client."""
