"""``v1.PodResourcesLister``: a service of the kubelet, which lists the pods that run and the claims that they use.

Kubelets list claims from Kubernetes 1.34 on (KEP-3695, feature gate KubeletPodResourcesDynamicResources), and pods with
no claims in them before. So an entry says that a claim is in use, and no entry does not say that it is not.
"""

from typing import Final

from api._generated.podresources_v1 import api_pb2
from api.grpc_method import GrpcMethod
from api.model.base import Value
from api.model.names import ObjectRef

_SERVICE: Final = api_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"].full_name


class ClaimUse(Value):
    """One claim that a pod on this node uses."""

    claim: ObjectRef
    pod: ObjectRef


def _encode_request(_: None) -> bytes:
    return api_pb2.ListPodResourcesRequest().SerializeToString()


def _decode_request(data: bytes) -> None:
    api_pb2.ListPodResourcesRequest.FromString(data)


def _encode_uses(uses: tuple[ClaimUse, ...]) -> bytes:
    pods = [
        api_pb2.PodResources(
            name=use.pod.name,
            namespace=use.pod.namespace,
            containers=[
                api_pb2.ContainerResources(
                    dynamic_resources=[
                        api_pb2.DynamicResource(claim_name=use.claim.name, claim_namespace=use.claim.namespace)
                    ]
                )
            ],
        )
        for use in uses
    ]
    return api_pb2.ListPodResourcesResponse(pod_resources=pods).SerializeToString()


def _decode_uses(data: bytes) -> tuple[ClaimUse, ...]:
    answer = api_pb2.ListPodResourcesResponse.FromString(data)
    uses = {
        ClaimUse(claim=ObjectRef(used.claim_namespace, used.claim_name), pod=ObjectRef(pod.namespace, pod.name)): None
        for pod in answer.pod_resources
        for container in pod.containers
        for used in container.dynamic_resources
    }
    return tuple(uses)


LIST: Final[GrpcMethod[None, tuple[ClaimUse, ...]]] = GrpcMethod(
    service=_SERVICE,
    name="List",
    encode_request=_encode_request,
    decode_request=_decode_request,
    encode_response=_encode_uses,
    decode_response=_decode_uses,
)
