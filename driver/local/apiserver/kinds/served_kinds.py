"""Which kinds are served right now: the built-in table, and what CustomResourceDefinitions add to it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from driver.local.apiserver.kinds.core import CORE_KINDS
from driver.local.apiserver.kinds.other import OTHER_KINDS
from driver.local.apiserver.kinds.resource import build_resource_kinds
from driver.local.apiserver.kinds.types import ApiVersion, ResourceType
from driver.local.apiserver.meta.status_errors import path_not_found
from driver.local.apiserver.settings import ApiServerSettings
from driver.local.apiserver.storage import GroupResource


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """A kind in one of its versions."""

    type: ResourceType
    version: ApiVersion


class ServedKinds:
    """The kinds by group and plural. Changes when CustomResourceDefinitions do."""

    def __init__(self, builtin: Iterable[ResourceType]) -> None:
        self._types = {type_.group_resource: type_ for type_ in builtin}

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._types.values())

    def has_group(self, group: str) -> bool:
        return any(type_.group == group for type_ in self)

    def get(self, resource: GroupResource) -> ResourceType | None:
        return self._types.get(resource)

    def served(self, group: str, version: str, plural: str) -> ServedVersion:
        """Raises RefusedError (404) for what is not served."""
        type_ = self._types.get(GroupResource(group, plural))
        found = type_.version(version) if type_ else None
        if type_ is None or found is None:
            raise path_not_found()
        return ServedVersion(type_, found)

    def define(self, type_: ResourceType) -> None:
        self._types[type_.group_resource] = type_

    def forget(self, resource: GroupResource) -> None:
        self._types.pop(resource, None)


def builtin_types(settings: ApiServerSettings) -> list[ResourceType]:
    """Every built-in kind that is served."""
    return [*CORE_KINDS, *build_resource_kinds(settings), *OTHER_KINDS]
