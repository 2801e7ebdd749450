"""Pieces of patches that every writer needs."""

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta


def if_unchanged(metadata: ObjectMeta) -> JsonObject:
    """Return metadata that makes a patch fail when the object has changed, or is another one of the same name."""
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}


def replace_by_merge(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return the merge patch that makes ``new`` of ``old``: a merge keeps what it does not name (RFC 7396).

    >>> replace_by_merge({"devices": {"total": 1, "online": 1}}, {"devices": {"total": 1}})
    {'devices': {'online': None, 'total': 1}}
    """
    patch: JsonObject = dict.fromkeys(sorted(old.keys() - new.keys()))
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            value = replace_by_merge(before, value)
        patch[name] = value
    return patch
