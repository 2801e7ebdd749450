"""An API server with the binding of graded placement, which an administrator makes and deletes."""

from dataclasses import dataclass

from kerf_dra.api.core.admission import MUTATING_ADMISSION_POLICY_BINDINGS
from kerf_dra.api.model.metadata import ObjectMeta, ObjectT
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.errors import ApiError, NotFoundError


@dataclass
class BindingServer:
    """The bindings of one name; ``failure`` is the error of every read, None: reads are answered."""

    exists: bool = False
    failure: ApiError | None = None

    async def get(self, kind: Kind[ObjectT], name: str, namespace: str = "") -> ObjectT:
        assert (kind.plural, name, namespace) == (
            MUTATING_ADMISSION_POLICY_BINDINGS.plural,
            "graded-placement.gpu.kerf.dev",
            "",
        )
        if self.failure is not None:
            raise self.failure
        if not self.exists:
            raise NotFoundError("GET", 404, "NotFound", name)
        return kind.type(metadata=ObjectMeta(name=name))
