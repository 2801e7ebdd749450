"""``v1.PodResourcesLister``: a service of the kubelet: the pods that run, the claims and the device IDs that they use.

Kubelets list claims from Kubernetes 1.34 on (KEP-3695, feature gate KubeletPodResourcesDynamicResources), and pods with
no claims in them before. So an entry says that a claim is in use, and no entry does not say that it is not.
"""

from typing import Final

from kerf_dra.api._generated.podresources_v1 import api_pb2
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.base import Value
from kerf_dra.api.model.names import ObjectRef

_SERVICE: Final = api_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"].full_name


class ClaimUse(Value):
    """One claim that a pod on this node uses."""

    claim: ObjectRef
    pod: ObjectRef


class DeviceUse(Value):
    """One device ID of an extended resource that a container on this node has."""

    resource: str
    id: str
    pod: ObjectRef


class PodUses(Value):
    """What the pods on this node use."""

    claims: tuple[ClaimUse, ...] = ()
    devices: tuple[DeviceUse, ...] = ()


def _encode_request(_: None) -> bytes:
    return api_pb2.ListPodResourcesRequest().SerializeToString()


def _decode_request(data: bytes) -> None:
    api_pb2.ListPodResourcesRequest.FromString(data)


def _encode_uses(uses: PodUses) -> bytes:
    claims = [
        (
            use.pod,
            api_pb2.ContainerResources(
                dynamic_resources=[
                    api_pb2.DynamicResource(claim_name=use.claim.name, claim_namespace=use.claim.namespace)
                ]
            ),
        )
        for use in uses.claims
    ]
    devices = [
        (
            use.pod,
            api_pb2.ContainerResources(
                devices=[api_pb2.ContainerDevices(resource_name=use.resource, device_ids=[use.id])]
            ),
        )
        for use in uses.devices
    ]
    pods = [
        api_pb2.PodResources(name=pod.name, namespace=pod.namespace, containers=[container])
        for pod, container in (*claims, *devices)
    ]
    return api_pb2.ListPodResourcesResponse(pod_resources=pods).SerializeToString()


def _decode_uses(data: bytes) -> PodUses:
    claims: dict[ClaimUse, None] = {}
    devices: dict[DeviceUse, None] = {}
    for pod in api_pb2.ListPodResourcesResponse.FromString(data).pod_resources:
        ref = ObjectRef(pod.namespace, pod.name)
        for container in pod.containers:
            for used in container.dynamic_resources:
                claims[ClaimUse(claim=ObjectRef(used.claim_namespace, used.claim_name), pod=ref)] = None
            for held in container.devices:  # an entry for each NUMA node
                for id_ in held.device_ids:
                    devices[DeviceUse(resource=held.resource_name, id=id_, pod=ref)] = None
    return PodUses(claims=tuple(claims), devices=tuple(devices))


LIST: Final[GrpcMethod[None, PodUses]] = GrpcMethod(
    service=_SERVICE,
    name="List",
    encode_request=_encode_request,
    decode_request=_decode_request,
    encode_response=_encode_uses,
    decode_response=_decode_uses,
)
