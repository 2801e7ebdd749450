"""The words that anonymized dumps keep: no secrets, because they are the same in every cluster.

They are words of Kubernetes' and CEL's own vocabulary, of the messages by which ``kerf why`` recognizes a cause, the
names of fields of Kerf's parameters, and models, profiles and functions of the hardware that the installed families
know. Beside them stay numbers of up to three digits, sizes such as ``40gb`` and ``16384Mi``, and API versions.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from kerf_dra.api.kerf import classic_parameters, v1alpha1
from kerf_dra.api.model.devices import Attribute
from kerf_dra.driver.families.registry import installed_families

PUBLIC_FORMS: Final = re.compile(
    r"[A-Za-z]|\d{1,3}|v\d{1,2}(?:(?:alpha|beta)\d{1,2})?|\d{1,6}(?:[kmgtKMGT]i?[bB]?|[cu]|ms|s|min|h)"
)
"""Words that are public by their form: letters, small numbers, versions, sizes."""
SEPARATE: Final = re.compile(r"(?:[A-Za-z0-9]|[^\x00-\x7f])+")
"""A word: every character but ASCII punctuation belongs to one."""

_CEL: Final = """
    device driver attributes capacity allowMultipleAllocations cel bind has all exists exists_one existsOne map filter
    in true false null size contains startsWith endsWith matches lowerAscii upperAscii charAt indexOf lastIndexOf join
    replace split substring trim reverse format quote quantity isQuantity asInteger asApproximateFloat sign isInteger
    add sub compareTo isGreaterThan isLessThan semver isSemver major minor patch sum min max isSorted includes find
    findAll optional of none ofNonZeroValue orValue value hasValue optMap optFlatMap or sets equivalent intersects
    string int uint double bool bytes type dyn list math greatest least transformList distinct flatten sort sortBy
    slice range first last regex extract extractAll transformMap transformMapEntry duration timestamp
"""
_KUBERNETES: Final = """
    Node Nodes Pod Pods ResourceClaim ResourceClaims ResourceClaimTemplate ResourceClaimTemplates ResourceSlice
    ResourceSlices ResourceClass ResourceClasses DeviceClass DeviceClasses DeviceTaintRule DeviceTaintRules Event Events
    PodSchedulingContext PodSchedulingContexts NodeInventory NodeInventories Deployment ReplicaSet StatefulSet DaemonSet
    Job CronJob Namespace ServiceAccount ReplicationController apps batch core default kube system public kerf dev
    kubernetes k8s io resource node beta topology hostname arch os instance zone region role control plane master worker
    amd64 arm64 linux windows nvidia amd intel com gpu gpus fpga fpgas tpu npu product memory cpu storage ephemeral
    unschedulable unreachable pressure disk pid network unavailable ready not out of service cloudprovider uninitialized
    NoSchedule NoExecute PreferNoSchedule None In NotIn Exists DoesNotExist Gt Lt Equal ExactCount All Ready
    PodScheduled PodReadyToStartContainers True False Unknown Unschedulable SchedulingGated SchedulerError Pending
    Running Succeeded Failed Normal Warning KubeletReady KubeletNotReady NodeStatusUnknown NodeStatusNeverUpdated
    ContainersNotReady ContainersNotInitialized ContainerCreating PodInitializing CrashLoopBackOff ErrImagePull
    ImagePullBackOff InvalidImageName CreateContainerConfigError CreateContainerError RunContainerError StartError
    ContainerCannotRun Completed Healthy Unhealthy FailedCreatePodSandBox FailedMount FailedAttachVolume
    InUseOutsideKerf CardInQuarantine CardModeUnavailable CardsNotDiscovered CardsDiscovered CardFree PartitionGone
    SharesNotPublished FailedPrepareDynamicResources FailedKillPod FailedResourceClaimCreation WaitForFirstConsumer
    Immediate Shareable FromClass FromClaim finalizer finalizers protection delete reserved foreground
    foregroundDeletion orphan hash template status metadata name namespace matchFields pciBusID pcieRoot numaNode
    standard requests limits count hugepages Always OnFailure Never
"""
_KERF: Final = """
    whole partition monitor held kept out quarantined refused load failed unhealthy lost cut shared slot slots
    share shares Compiled Accepted Matched Loaded Prepared Available Degraded TimeSlicing Mps Exclusive Shared
    BeforeBinding BeforeStart Whole Partition Monitor Smallest Monitoring me no at mig shell function profile model uuid
    driverVersion architecture early loading prepare Packed Spread sampled idleSince
"""
_SENTENCES: Final = """
    failed to prepare dynamic resources: prepare dynamic resources: rpc error: code = Unavailable desc = connection
    refused, code = DeadlineExceeded, context deadline exceeded; DRA driver plugin is not registered, not found in the
    list of registered DRA drivers; User "system:node:" cannot get resource "resourceclaims" in API group at the cluster
    scope, no relationship found between node and this object; two claims for one exclusive device; this node does not
    have it; in use outside of Kerf; spec.devices.config opaque.parameters, device configuration, needs adminAccess; not
    reserved for pod, pod not allowed to use; PodResourceClaim: exceeded quota: requested, used, limited: failed to
    create ResourceClaim; is forbidden; its resource handle, it has, pods use it; NodeUnprepareResources failed to
    unprepare resources for claim; fetch, not allocated, was not created for, is not owner, neither nor, old different
    UID still exists, could not find the requested resource, none of the supported fields are set, not created yet,
    checkpoint cache, DRAOptionalNodeOperations feature gate, dial unix, driver's socket, NodePrepareResources skipped,
    left out, returned result for unknown claim, failed for; error killing: KillContainer KillPodSandbox StopContainer
    StopPodSandbox containerd crio; unresolvable CDI devices, CDI device injection failed, failed to inject, error
    running createRuntime createContainer startContainer prestart hook, executing, hooks, nvidia cdi ctk container cli,
    could not apply required modification to specification; OCI runtime create failed, runc crun, stat host, gathering
    information while adding custom, creating, mknod, mount mounting rootfs, no such file or directory; card gets no
    claims, is partly, has lost, is not available, is free for claims again, backend cannot discover its cards; waiting
    for binding conditions; nodes are available: had untolerated taint, didn't match Pod's node affinity/selector,
    cannot allocate all claims, still not schedulable, preemption: is not helpful for scheduling, No preemption victims
    found for incoming pod, Insufficient; resource driver controller
"""


def _words(text: str) -> Iterator[str]:
    yield from (word.lower() for word in SEPARATE.findall(text))


@cache
def public_words() -> frozenset[str]:
    """Return the public words, in lower case."""
    found = {word for text in (_CEL, _KUBERNETES, _KERF, _SENTENCES) for word in _words(text)}
    for text in _fields_of_parameters():
        found.update(_words(text))
    for text in _hardware():
        found.update(_words(text))
    return frozenset(found)


def _fields_of_parameters() -> Iterator[str]:
    for module in (classic_parameters, v1alpha1):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                yield from (value.__name__, *value.__struct_encode_fields__)


def _hardware() -> Iterator[str]:
    """Yield the names of what the installed families can make of their models."""
    for family in installed_families().values():
        yield from (family.name, family.driver)
        for geometry in family.geometries():
            yield from (geometry.model, geometry.unit, *(name for name, _ in geometry.engines))
            yield from (text for _, attribute in geometry.attributes for text in _texts(attribute))
            for spec in geometry.specs:
                yield from filter(None, (spec.profile, spec.function))


def _texts(attribute: Attribute) -> Iterator[str]:
    values = attribute.value if isinstance(attribute.value, tuple) else (attribute.value,)
    yield from (value for value in values if isinstance(value, str))
