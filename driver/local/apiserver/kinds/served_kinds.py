"""The kinds that are served now: the built-in ones, and those of CustomResourceDefinitions.

Groups, versions, names and short names of built-in kinds are those of Kubernetes 1.37 (``kubectl api-resources``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kerf_dra.driver.local.apiserver.kinds.core import CORE_KINDS
from kerf_dra.driver.local.apiserver.kinds.other import OTHER_KINDS
from kerf_dra.driver.local.apiserver.kinds.resource import build_resource_kinds
from kerf_dra.driver.local.apiserver.kinds.types import ApiVersion, ResourceType
from kerf_dra.driver.local.apiserver.meta.status_errors import path_not_found
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings
from kerf_dra.driver.local.apiserver.storage import GroupResource


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """A kind in one of its versions."""

    type: ResourceType
    version: ApiVersion


class ServedKinds:
    """The served kinds by group and plural."""

    def __init__(self, builtin: Iterable[ResourceType]) -> None:
        self._types = {type_.group_resource: type_ for type_ in builtin}

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._types.values())

    def has_group(self, group: str) -> bool:
        return any(type_.group == group for type_ in self)

    def get(self, resource: GroupResource) -> ResourceType | None:
        return self._types.get(resource)

    def find(self, group: str, version: str, plural: str) -> ServedVersion:
        """Find a kind in a version. Raises ApiStatusError (404) for one that is not served."""
        type_ = self._types.get(GroupResource(group, plural))
        found = type_.version(version) if type_ else None
        if type_ is None or found is None:
            raise path_not_found()
        return ServedVersion(type_, found)

    def add(self, type_: ResourceType) -> None:
        self._types[type_.group_resource] = type_

    def remove(self, resource: GroupResource) -> None:
        self._types.pop(resource, None)


def builtin_types(settings: ApiServerSettings) -> list[ResourceType]:
    """Return the built-in kinds that these settings serve."""
    return [*CORE_KINDS, *build_resource_kinds(settings), *OTHER_KINDS]
