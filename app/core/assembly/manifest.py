"""Check a model's files against its manifest, a list of SHA-256 digests, and the manifest against its signature.

``model.sha256`` has the format of ``sha256sum``. It is in the model's folder, above any versions, and lists every file
below. A model with this file is loaded only if its files match it. ``model.sha256.sig`` is its 64-byte
Ed25519 signature (RFC 8032), in the format of ``openssl pkeyutl -sign -rawin``.
"""

import hashlib
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from app.core.engine.error_text import needs_extra
from app.core.runtimes.folder import ModelFile, identity_of, iterate_files
from app.core.settings.model import ModelError, ModelSource, read_bounded

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MANIFEST_FILE = "model.sha256"
SIGNATURE_FILE = f"{MANIFEST_FILE}.sig"

_OWN_FILES = (PurePosixPath(MANIFEST_FILE), PurePosixPath(SIGNATURE_FILE))
_MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_MAX_KEY_FILE_BYTES = 1024 * 1024
_SIGNATURE_BYTES = 64
_LINE = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](?:\./)?(?P<path>[^/].*?)\r?")
_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)


@contextmanager
def checked_manifest(source: ModelSource) -> Generator[None]:
    """Check a model's files against its manifest; at the end, check that they are still those that were hashed.

    Raise ModelError when a required manifest or signature is missing, or does not match the files, or when a file was
    replaced, written to, added or removed before the end.
    """
    files = _check_files(source)
    yield
    if files is not None and (current_files := manifest_files(source)) != files:
        changed_file = min(set(current_files) ^ set(files))
        raise ModelError(
            f"{changed_file.path} changed while the model was loaded; what was checked may not be what runs"
        )


def _check_files(source: ModelSource) -> list[ModelFile] | None:
    """Return the files with their identity when they were hashed; None if there is no manifest and none is required."""
    folder = source.root or source.folder
    manifest = folder / MANIFEST_FILE
    if not manifest.is_file():
        if source.require_manifest or source.signing_key is not None:
            raise ModelError(f"{folder} has no {MANIFEST_FILE}, and models without one are not loaded here")
        if (source.folder / MANIFEST_FILE).is_file():
            # Do not ignore this manifest silently: its author relies on it.
            raise ModelError(
                f"{source.folder / MANIFEST_FILE} is ignored; put the list above the versions, at {manifest}"
            )
        return None
    content = read_bounded(manifest, _MAX_MANIFEST_BYTES)
    if source.signing_key is not None:
        _check_signature(folder / SIGNATURE_FILE, content, source.signing_key)
    digests = _parsed(manifest, content)
    files = [_verified(file, digests, manifest) for file in manifest_files(source)]
    # Files of this version, and files beside the versions.
    expected = {
        path for path in digests if source.root is None or len(path.parts) == 1 or path.parts[0] == source.folder.name
    }
    if missing := expected - {file.relative_path for file in files}:
        raise ModelError(f"{manifest} lists {min(missing)}, which is missing or hidden")
    return files


def manifest_files(source: ModelSource) -> list[ModelFile]:
    """Return the files of a model that its manifest must list."""
    return [file for file in iterate_files(source, reject_special_files=True) if file.relative_path not in _OWN_FILES]


def _parsed(manifest: Path, content: bytes) -> Mapping[PurePosixPath, str]:
    """Return the digest of each file by its path in the manifest."""
    digests: dict[PurePosixPath, str] = {}
    try:
        lines = content.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise ModelError(f"{manifest} is not a list as sha256sum writes it") from None
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ModelError(
                f"{manifest}, line {number}: Expected a SHA-256, two spaces and a file, as sha256sum writes"
            )
        path = PurePosixPath(match["path"])
        if path in digests:
            raise ModelError(f"{manifest}, line {number}: {path} is listed twice")
        digests[path] = match["digest"].lower()
    return digests


def _verified(file: ModelFile, digests: Mapping[PurePosixPath, str], manifest: Path) -> ModelFile:
    """Check the digest of `file`, and return the file with its identity at the time of reading."""
    expected = digests.get(file.relative_path)
    if expected is None:
        raise ModelError(f"{file.path} is not listed in {manifest}")
    try:
        with file.path.open("rb") as opened:
            actual = hashlib.file_digest(opened, "sha256").hexdigest()
            identity = identity_of(os.fstat(opened.fileno()))
    except OSError as error:
        raise ModelError(f"{file.path} cannot be read: {error.strerror}") from None
    if actual != expected:
        raise ModelError(f"{file.path} is not the file that {manifest} lists: its SHA-256 is {actual}, not {expected}")
    return msgspec.structs.replace(file, identity=identity)


def _check_signature(path: Path, content: bytes, keys: Path) -> None:
    """Reject a manifest that none of the operator's keys has signed."""
    if not path.is_file():
        raise ModelError(f"{path} is missing, and only models with a signed list are loaded here")
    signature = read_bounded(path, _MAX_MANIFEST_BYTES)
    if len(signature) != _SIGNATURE_BYTES:
        raise ModelError(
            f"{path} has {len(signature):,} bytes; expected the {_SIGNATURE_BYTES} of an Ed25519 signature"
        )
    public_keys = _public_keys(keys)
    from cryptography.exceptions import InvalidSignature

    for key in public_keys:
        with suppress(InvalidSignature):
            key.verify(signature, content)
            return
    raise ModelError(f"{path} is not the signature of this {MANIFEST_FILE} by a key of {keys}")


def _public_keys(path: Path) -> "Sequence[Ed25519PublicKey]":
    """Return the operator's keys. They are read every time, so that a key can be replaced while the server runs."""
    with needs_extra("--model-signing-key", "signatures", ModelError):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    try:
        keys = [load_pem_public_key(block) for block in _KEY.findall(read_bounded(path, _MAX_KEY_FILE_BYTES))]
    except ValueError:
        raise ModelError(f"{path} holds a public key that cannot be read") from None
    ed25519_keys = [key for key in keys if isinstance(key, Ed25519PublicKey)]
    if not ed25519_keys or len(ed25519_keys) != len(keys):
        raise ModelError(f"{path}: Expected Ed25519 public keys (PEM), as `openssl pkey -pubout` writes them")
    return ed25519_keys
