"""Whether graded placement is enabled in the cluster: whether the binding of its policy exists.

The policy (``deploy/graded-placement``) makes alternatives of the requests of labeled DeviceClasses. Kerf does not
write it: an administrator applies it, or the chart does. Its binding is read by name at an interval.

| answer | graded placement is |
|---|---|
| the binding | enabled |
| it does not exist, or its kind is not served (Kubernetes before 1.36) | not enabled |
| the controller may not read it | not enabled; that is logged |
| any other error | as the last answer said, at first not enabled; that is logged |
"""

import logging
from typing import Final, Protocol

from kerf_dra.api.core.admission import MUTATING_ADMISSION_POLICY_BINDINGS
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.errors import ForbiddenError, NotFoundError
from kerf_dra.driver.runtime.problem_log import ProblemLog

BINDING: Final = "graded-placement.gpu.kerf.dev"
"""The name of the binding in ``deploy/graded-placement``, and the only one that the controller's role lets it read."""

_log = logging.getLogger(__name__)


class BindingClient(Protocol):
    """The call of ``kerf_dra.driver.kube.http.client.Client``, with its errors."""

    async def get(self, kind: Kind[ObjectT], name: str, namespace: str = "") -> ObjectT: ...


class GradedPlacement:
    """Whether graded placement is enabled, as the API server last said."""

    def __init__(self, client: BindingClient) -> None:
        self._client = client
        self._problems = ProblemLog(_log)
        self._is_enabled = False

    @property
    def is_enabled(self) -> bool:
        """Whether the binding exists, by the last answer."""
        return self._is_enabled

    async def refresh(self) -> bool:
        """Read the binding, and return whether the answer is another one than before. Errors are logged, not raised."""
        before = self._is_enabled
        try:
            self._is_enabled = await self._read()
            self._problems.clear(BINDING)
        except KerfError as error:
            self._is_enabled = before and not isinstance(error, ForbiddenError)
            self._problems.note(BINDING, f"whether graded placement is enabled cannot be read: {error}")
        return self._is_enabled != before

    async def _read(self) -> bool:
        try:
            await self._client.get(MUTATING_ADMISSION_POLICY_BINDINGS, BINDING)
        except NotFoundError:
            return False
        return True
