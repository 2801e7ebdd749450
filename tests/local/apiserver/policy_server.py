"""Admission policies of manifests, evaluated as the embedded API server does, without a server."""

from collections.abc import Iterable
from typing import Any, Final, Literal

from kerf_dra.driver.local.apiserver.admission.policies import ANONYMOUS, AdmissionAttributes
from kerf_dra.driver.local.apiserver.admission.validating_policies import check_policies
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage

Json = dict[str, Any]
_GROUP: Final = "admissionregistration.k8s.io"
_PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
NODE_NAME: Final = "authentication.kubernetes.io/node-name"


class PolicyServer:
    """The policies and bindings among some documents, in force."""

    def __init__(self, documents: Iterable[Json]) -> None:
        self._storage = Storage(history=1)
        for document in documents:
            if document["kind"] in _PLURALS:
                resource = GroupResource(_GROUP, _PLURALS[document["kind"]])
                self._storage.put(resource, ObjectKey("", document["metadata"]["name"]), document)

    def refusal(
        self,
        resource: str,
        *,
        new: Json | None = None,
        old: Json | None = None,
        user: Json = ANONYMOUS,
        subresource: str = "",
        group: str = "resource.k8s.io",
        version: str = "v1",
    ) -> str:
        """Return what the policies say to a write in ``version`` of ``group``; empty: nothing."""
        operation: Literal["CREATE", "UPDATE", "DELETE"] = "DELETE" if new is None else "UPDATE" if old else "CREATE"
        write = AdmissionAttributes(
            operation=operation,  # type: ignore[arg-type]  # the embedded server evaluates no policy on a delete
            resource=GroupResource(group, resource),
            version=version,
            subresource=subresource,
            key=ObjectKey("default", "c"),
            new=new,  # type: ignore[arg-type]
            old=old,
            user=user,
        )
        try:
            check_policies(self._storage, write)
        except ApiStatusError as error:
            return error.message.partition(" denied request: ")[2]
        return ""


def account(name: str, node: str = "") -> Json:
    """Return the user of a token of one of Kerf's service accounts; with ``node`` it is bound to that."""
    extra = {NODE_NAME: [node]} if node else {}
    return {"username": f"system:serviceaccount:kerf-system:{name}", "extra": extra}
