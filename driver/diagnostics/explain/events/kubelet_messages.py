"""What kubelets report about claims, in events of pods: whose error it is, and what ends it.

A kubelet first reads and checks the claims itself, then calls the drivers' plugins; only texts of those calls
(``NodePrepareResources``, ``NodeUnprepareResources``) and of a missing registration point at a plugin. Errors of the
first kind are recognized by the words of kubelets 1.26 to 1.37 (``pkg/kubelet/cm/dra``, and the package
``resourceclaim`` of ``k8s.io/dynamic-resource-allocation``), refusals of a plugin by the words of Kerf's; a message of
another driver is repeated as it is.
"""

import re
from dataclasses import dataclass
from typing import Final

from kerf_dra.driver.diagnostics.explain.report import CauseCode


@dataclass(frozen=True, slots=True)
class KubeletMessage:
    """A kind of message, which is recognized by its words."""

    pattern: re.Pattern[str]
    code: CauseCode
    step: str
    """``{recreate}`` stands for how the pod gets other devices, ``{node}`` for its node."""
    is_fault: bool = True


_CALL: Final = re.compile(
    r"Node(?:Un)?[Pp]repareResources?|rpc error: |could not (?:un)?prepare ResourceClaim|"
    r"driver \S+ (?:skipped|answered)"
)
"""The name of the call to a plugin or an error of gRPC, in texts of kubelets and of the embedded one."""
_ANSWER: Final = re.compile(
    r"Node(?:Un)?[Pp]repareResources? failed for |could not (?:un)?prepare ResourceClaim|"
    r"(?:skipped|left out) \d+ (?:ResourceC|c)laims|result for unknown claim"
)
"""The plugin has answered the call, so it runs."""
_CLAIMS: Final = re.compile(r"Node(?:Un)?[Pp]repareResources?|dynamic resources|ResourceClaim|DRA ")
"""A message about claims, or about a driver."""
_REGISTRATION: Final = re.compile(r"is not registered|not found in the list of registered")
"""The kubelet knows no plugin of the driver."""
_FETCH: Final = r"fetch ResourceClaim|get resource ?claim|/apis/resource\.k8s\.io/"

_OF_KUBELET: Final = (
    KubeletMessage(
        re.compile(r"User \"system:node:[^\"]*\" cannot get resource \"resourceclaims\""),
        CauseCode.CLAIM_NOT_VISIBLE,
        "wait: the API server's node authorizer lets the kubelet read the claim once it has seen that the pod is on "
        "{node}, and the kubelet tries again within some 15 s",
        is_fault=False,
    ),
    KubeletMessage(
        re.compile(r"not reserved for|allowed to use"),
        CauseCode.NOT_RESERVED,
        "{recreate}, without spec.nodeName: only the scheduler reserves claims, and it does not see a pod that names "
        "its node",
    ),
    KubeletMessage(
        re.compile(r"\b(?:is )?not allocated$"),
        CauseCode.BOUND_WITHOUT_ALLOCATION,
        "{recreate}, without spec.nodeName: only the scheduler allocates claims, and it does not see a pod that names "
        "its node",
    ),
    KubeletMessage(
        re.compile(r"was not created for|is not (?:the )?owner|neither Pod nor PodGroup"),
        CauseCode.KUBELET_ERROR,
        "the claim of that name belongs to another pod (metadata.ownerReferences): {recreate}",
    ),
    KubeletMessage(
        re.compile(r"different UID|(?:old|older) ResourceClaim"),
        CauseCode.KUBELET_ERROR,
        "wait a minute: an earlier claim of that name is still prepared on {node}, for a pod that was deleted by "
        "force, and its kubelet unprepares it; if nothing changes, check that the plugin of its driver runs there",
        is_fault=False,
    ),
    KubeletMessage(
        re.compile(r"could not find the requested resource|none of the supported fields are set"),
        CauseCode.KUBELET_ERROR,
        "have the kubelet of {node} and the API server speak a common version of resource.k8s.io: update the older "
        "one, or serve the kubelet's version (--runtime-config of the API server); kerf check cluster lists both",
    ),
    KubeletMessage(
        re.compile(r"not created yet|ResourceClaim \S+ does not exist|resourceclaims\S* \"[^\"]*\" not found"),
        CauseCode.KUBELET_ERROR,
        "wait: the kubelet of {node} has asked for the claim before it saw it, and tries again by itself; if nothing "
        "changes, {recreate}",
        is_fault=False,
    ),
    KubeletMessage(
        re.compile(_FETCH),
        CauseCode.KUBELET_ERROR,
        "restore what the message names between the kubelet of {node} and the API server (network, certificate, load); "
        "the kubelet tries again by itself",
    ),
    KubeletMessage(
        re.compile(r"checkpoint"),
        CauseCode.KUBELET_ERROR,
        "let the kubelet of {node} write its file dra_manager_state, in its root directory (/var/lib/kubelet): the "
        "disk is full or read-only, or the file is damaged; it tries again by itself",
    ),
    KubeletMessage(
        re.compile(r"DRAOptionalNodeOperations"),
        CauseCode.KUBELET_ERROR,
        "enable the feature gate DRAOptionalNodeOperations on the kubelet of {node}, or have the driver publish its "
        "devices without skipNodeOperations; then {recreate}",
    ),
)
"""Errors of kubelets themselves, for which no plugin is asked."""
_OTHER_OF_KUBELET: Final = KubeletMessage(
    re.compile(""),
    CauseCode.KUBELET_ERROR,
    "read the log of the kubelet on {node} (journalctl -u kubelet): the kubelet itself reports this and has asked no "
    "plugin; it tries again by itself; for other devices {recreate}",
)
_ABSENT: Final = KubeletMessage(
    re.compile(
        r"is not registered|not found in the list of registered|code = Unavailable|UNAVAILABLE|dial unix|"
        r"driver's socket"
    ),
    CauseCode.DRIVER_ABSENT,
    "start the driver's plugin on {node} (kubectl get pods -A --field-selector spec.nodeName={node} shows what "
    "runs there): the kubelet tries again by itself",
)
_SLOW: Final = KubeletMessage(
    re.compile(r"DeadlineExceeded|DEADLINE_EXCEEDED|deadline exceeded"),
    CauseCode.PREPARE_SLOW,
    "wait: the kubelet asks again, and the driver goes on meanwhile; if nothing changes, read the log of the "
    "driver's plugin on {node}, or {recreate}",
)
_OF_PLUGIN: Final = (
    KubeletMessage(
        re.compile(r"two claims for one exclusive device"),
        CauseCode.DOUBLE_ALLOCATION,
        "wait until the other claim ends, or {recreate}; run one scheduler only for pods with such claims",
    ),
    KubeletMessage(
        re.compile(r"this node does not have it"),
        CauseCode.DEVICE_GONE,
        "check that the card is there, or {recreate}",
    ),
    KubeletMessage(
        re.compile(r"in use outside of Kerf"),
        CauseCode.HARDWARE_HELD,
        "end what holds the hardware on {node}: the kubelet then tries again by itself; or {recreate}",
    ),
    KubeletMessage(
        re.compile(r"opaque\.parameters|device configuration|needs adminAccess"),
        CauseCode.PARAMETERS_REFUSED,
        "correct the field in the claim's template or in the class, then {recreate}: an allocation keeps the "
        "configuration with which it was made",
    ),
    KubeletMessage(
        re.compile(r"not reserved for"),
        CauseCode.NOT_RESERVED,
        "{recreate}, without spec.nodeName: only the scheduler reserves claims, and it does not see a pod that names "
        "its node",
    ),
)
"""Why a plugin of Kerf refuses to prepare a claim."""
_OTHER_OF_PLUGIN: Final = KubeletMessage(
    re.compile(""),
    CauseCode.PREPARE_FAILED,
    "read the log of the driver's plugin on {node}; the kubelet tries again by itself; for other devices {recreate}",
)


_OF_RUNTIME: Final = re.compile(r"KillContainer|KillPodSandbox|StopContainer|StopPodSandbox|containerd|crio\b")
"""A container runtime has failed to end containers: these are errors of gRPC, too, and not a plugin's."""


def classify_message(message: str) -> KubeletMessage:
    """Return of which kind a kubelet's ``message`` is about a pod whose claims it cannot prepare."""
    kinds: tuple[KubeletMessage, ...] = _OF_PLUGIN
    other = _OTHER_OF_PLUGIN
    if _ANSWER.search(message):
        pass
    elif _CALL.search(message):
        kinds = (*kinds, _ABSENT, _SLOW)
    elif _REGISTRATION.search(message):
        return _ABSENT
    else:
        kinds, other = (*_OF_KUBELET, *kinds), _OTHER_OF_KUBELET
    return next((each for each in kinds if each.pattern.search(message)), other)


def is_plugin_away(message: str) -> bool:
    """Whether a kubelet's message about a pod that it cannot end says that it does not reach the driver's plugin."""
    if _ANSWER.search(message) or is_runtime_failure(message):
        return False
    return _ABSENT.pattern.search(message) is not None


def is_runtime_failure(message: str) -> bool:
    """Whether a kubelet's message about a pod that it cannot end is about its containers, not about its claims."""
    return _OF_RUNTIME.search(message) is not None and _CLAIMS.search(message) is None
