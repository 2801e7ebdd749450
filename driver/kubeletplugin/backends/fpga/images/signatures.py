"""Signatures of image files: ed25519 (RFC 8032), detached, by keys that the node's administrator has configured.

A signature says that a file, by its SHA-256, is one version of one function for one interface
(``ImageReference.statement``). So an object of the cluster cannot give a signed file another name.
"""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class InvalidKeyError(PermanentError):
    """A configured key is no ed25519 public key in PEM, or there is no library that could use it."""


class KeyRing:
    """The public keys of a node; without any, images need no signature."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """``keys`` are PEM texts by name. Raises InvalidKeyError."""
        self._keys = {name: _read_key(name, pem) for name, pem in keys.items()}

    def find_fault(self, image: ImageReference) -> ImageRefusal | None:
        """Return why the image's signature is none of these keys'; None: it is, or there are no keys."""
        if not self._keys:
            return None
        if not image.signature:
            message = f"image {image.name} has no signature, and this node has keys"
            return ImageRefusal("Unsigned", message)
        from cryptography.exceptions import InvalidSignature  # of use for nodes with keys only

        signature = base64.b64decode(image.signature)
        for key in self._keys.values():
            try:
                key.verify(signature, image.statement)
            except InvalidSignature:
                continue
            return None
        known = ", ".join(sorted(self._keys))
        message = f"image {image.name} was not signed as this by any key of this node: {known}"
        return ImageRefusal("WrongSignature", message)


def _read_key(name: str, pem: str) -> "Ed25519PublicKey":
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise InvalidKeyError(
            f"key {name}: signatures need the Python package cryptography: pip install '.[fpga]' in Kerf's checkout"
        ) from error
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, TypeError) as error:
        raise InvalidKeyError(f"key {name} is not a public key in PEM") from error
    except Exception as error:
        raise InvalidKeyError(f"key {name} is of a kind that is not supported") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidKeyError(f"key {name} is not an ed25519 key")
    return key
