"""Pieces of patches that every writer needs."""

from api.model.base import JsonObject
from api.model.metadata import ObjectMeta


def if_unchanged(metadata: ObjectMeta) -> JsonObject:
    """Return metadata that makes a patch fail when the object has changed, or is another one of the same name."""
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
