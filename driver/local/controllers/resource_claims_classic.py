"""What is otherwise about claims where drivers allocate (Kubernetes 1.27 to 1.31; KEP-3063).

The claim controller clears no allocation there: with the last consumer of a claim it asks the driver to
(``deallocationRequested``). An Immediate claim stays allocated.
"""

from collections.abc import Mapping

from api.core.v1 import Pod
from api.model.base import JsonObject
from api.model.classic import ClassicClaim, ClassicTemplate
from api.model.metadata import ObjectMeta
from api.resource.classic import ClassicKinds
from api.wire import to_builtins
from driver.kube.patches import if_unchanged
from driver.local.controllers.resource_claims import Claiming, is_done


def classic_claiming(kinds: ClassicKinds) -> Claiming[ClassicClaim, ClassicTemplate]:
    """Where drivers allocate."""
    return Claiming(kinds.claims, kinds.templates, from_template, release)


def from_template(metadata: ObjectMeta, template: ClassicTemplate) -> ClassicClaim:
    return ClassicClaim(metadata=metadata, spec=template.spec.spec)


def release(claim: ClassicClaim, pods: Mapping[str, Pod | None]) -> JsonObject | None:
    """``Claiming.release``: deallocation is asked for with the last consumer."""
    reserved = claim.status.reserved_for
    kept = tuple(consumer for consumer in reserved if consumer.resource != "pods" or not is_done(pods[consumer.uid]))
    if kept == reserved:
        return None
    status: JsonObject = {"reservedFor": to_builtins(kept) or None}
    if not kept and not claim.spec.immediate:
        status["deallocationRequested"] = True
    return {"metadata": if_unchanged(claim.metadata), "status": status}
