"""The table of built-in kinds.

Groups, versions, names and short names are those of Kubernetes 1.37 (``kubectl api-resources``).
"""

from driver.local.apiserver.kinds.core import core_types
from driver.local.apiserver.kinds.other import definition_type, stored_only_types
from driver.local.apiserver.kinds.resource import resource_types
from driver.local.apiserver.kinds.types import ResourceType
from driver.local.apiserver.settings import ApiServerSettings


def builtin_types(settings: ApiServerSettings) -> list[ResourceType]:
    """Every built-in kind that is served."""
    return [*core_types(), *resource_types(settings), definition_type(), *stored_only_types()]
