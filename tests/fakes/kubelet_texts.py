"""What kubelets, plugins and container runtimes write about pods with devices, word for word but for the names."""

from collections.abc import Mapping
from typing import Final

from kerf_dra.driver.diagnostics.devices.runtime_messages import DeviceFailure

SOCKET: Final = "/var/lib/kubelet/plugins/gpu.kerf.dev/dra.sock"

PREPARE_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    # what failed: the message after the kubelet's prefixes, the code of the cause
    "1.37, a claim that the node may not read": (
        (
            'fetch ResourceClaim p: resourceclaims.resource.k8s.io "p" is forbidden: User "system:node:node-1" cannot '
            "get "
            'resource "resourceclaims" in API group "resource.k8s.io" in the namespace "default": no relationship found'
        ),
        "claim-not-visible",
    ),
    "1.37, a claim that is not there yet": (
        'fetch ResourceClaim p: resourceclaims.resource.k8s.io "p" not found',
        "kubelet-error",
    ),
    "1.37, an API server that the kubelet does not reach": (
        (
            "fetch ResourceClaim p: Get "
            '"https://10.0.0.1:6443/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/p"'
            ": dial tcp 10.0.0.1:6443: connect: connection refused"
        ),
        "kubelet-error",
    ),
    "1.30, an API server that does not answer": (
        "prepare resource claim: failed to fetch ResourceClaim p referenced by pod p: context deadline exceeded",
        "kubelet-error",
    ),
    "1.33, an API server that does not serve the kubelet's version": (
        "failed to fetch ResourceClaim p referenced by pod p: the server could not find the requested resource",
        "kubelet-error",
    ),
    "1.37, a claim of another pod": (
        "ResourceClaim default/p was not created for Pod default/p (Pod is not owner)",
        "kubelet-error",
    ),
    "1.37, a claim of no pod of its group": (
        "ResourceClaim default/p was not created for Pod default/p (neither Pod nor PodGroup g is the owner)",
        "kubelet-error",
    ),
    "1.37, a claim that is not reserved": (
        "pod p (uid-p) is not allowed to use ResourceClaim p (uid-c)",
        "not-reserved",
    ),
    "1.30, a claim that is not reserved": (
        "pod p(uid-p) is not allowed to use resource claim p(uid-c)",
        "not-reserved",
    ),
    "1.37, a claim that is not allocated": ("ResourceClaim p: not allocated", "bound-without-allocation"),
    "1.37, a pod that was deleted by force": (
        "old ResourceClaim with same name p and different UID uid-0 still exists (previous pod force-deleted?!)",
        "kubelet-error",
    ),
    "1.37, a full disk": (
        (
            "checkpoint ResourceClaim cache: could not save checkpoint: write /var/lib/kubelet/.123: no space left on "
            "device"
        ),
        "kubelet-error",
    ),
    "1.30, a full disk": (
        "failed to checkpoint claimInfo state, err: write /var/lib/kubelet/.123: no space left on device",
        "kubelet-error",
    ),
    "1.37, a feature gate of the kubelet": (
        "ResourceClaim p: DRAOptionalNodeOperations feature gate is disabled on kubelet",
        "kubelet-error",
    ),
    "1.37, an error inside the kubelet": (
        "internal error: unable to get claim info for ResourceClaim p in namespace default",
        "kubelet-error",
    ),
    "1.37, no plugin": ("DRA driver gpu.kerf.dev is not registered", "driver-absent"),
    "1.30, no plugin": (
        (
            "failed to get DRA Plugin client for plugin name gpu.kerf.dev: plugin name gpu.kerf.dev not found in the "
            "list "
            "of registered DRA plugins"
        ),
        "driver-absent",
    ),
    "1.37, a socket without a plugin": (
        (
            "NodePrepareResources: rpc error: code = Unavailable desc = connection error: desc = "
            f'"transport: Error while dialing: dial unix {SOCKET}: connect: connection refused"'
        ),
        "driver-absent",
    ),
    "1.37, a plugin that does not answer": (
        "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "prepare-slow",
    ),
    "1.30, a plugin that does not answer": (
        "NodePrepareResources failed: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "prepare-slow",
    ),
    "1.37, a plugin that refuses": (
        "NodePrepareResources failed for ResourceClaim p: Insufficient Resources",
        "prepare-failed",
    ),
    "1.30, a plugin that refuses": (
        "NodePrepareResources failed for claim default/p: Insufficient Resources",
        "prepare-failed",
    ),
    "1.37, a plugin that does not reach the API server": (
        "NodePrepareResources failed for ResourceClaim p: GET /apis: dial tcp 10.0.0.1:6443: connection refused",
        "prepare-failed",
    ),
    "1.37, a plugin that gives up by its own clock": (
        "NodePrepareResources failed for ResourceClaim p: wait for node: context deadline exceeded",
        "prepare-failed",
    ),
    "1.37, a plugin that leaves out a claim": ("NodePrepareResources skipped 1 ResourceClaims", "prepare-failed"),
    "two claims for one device": (
        "NodePrepareResources failed for ResourceClaim p: two claims for one exclusive device: a is taken",
        "double-allocation",
    ),
    "hardware that another program uses": (
        "NodePrepareResources failed for ResourceClaim p: gpu-0: in use outside of Kerf: 3g.40gb at 0",
        "hardware-held",
    ),
}
"""What is behind ``Failed to prepare dynamic resources: prepare dynamic resources:`` in an event of the pod."""

_RUNC: Final = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init: "
)
DEVICE_TEXTS: Final[Mapping[str, tuple[str, DeviceFailure]]] = {
    "containerd, a name that no file has": (
        (
            "failed to create containerd container: CDI device injection failed: unresolvable CDI devices "
            "k8s.gpu.kerf.dev/gpu=claim-1"
        ),
        DeviceFailure.CDI,
    ),
    "containerd, CDI edits that cannot be applied": (
        "failed to create containerd container: CDI device injection failed: failed to inject devices: bad edit",
        DeviceFailure.CDI,
    ),
    "Kata, a name that no file has": (
        (
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to start sandbox: failed to create "
            "containerd task: device cold plug failed: cold plug: CDI device injection failed: unresolvable CDI "
            "devices "
            "nvidia.com/pgpu=vfio1"
        ),
        DeviceFailure.CDI,
    ),
    "the CDI library, no device node": (
        (
            'CDI device injection failed: failed to inject devices: failed to stat CDI host device "/dev/nvidia0": no '
            "such "
            "file or directory"
        ),
        DeviceFailure.NODE,
    ),
    "runc, no device node": (
        f"{_RUNC}error creating device nodes: mknod /dev/kfd: operation not permitted",
        DeviceFailure.NODE,
    ),
    "crun, no device node": (
        "container create failed: cannot stat `/dev/nvidia3`: No such file or directory",
        DeviceFailure.NODE,
    ),
    "runc, a library that is mounted": (
        (
            f'{_RUNC}error mounting "/usr/lib/libcuda.so.550" to rootfs at "/usr/lib/libcuda.so.550": no such file or '
            "directory"
        ),
        DeviceFailure.NODE,
    ),
    "runc 1.2, a hook": (
        f"{_RUNC}error running createContainer hook #0: exit status 1, stdout: , stderr: no driver: unknown",
        DeviceFailure.HOOK,
    ),
    "runc 1.1, a hook": (
        f"{_RUNC}error running hook #0: error running hook: exit status 1, stdout: , stderr: ",
        DeviceFailure.HOOK,
    ),
    "crun, a hook": (
        "container create failed: error executing hook `/usr/bin/nvidia-cdi-hook` (exit code: 1)",
        DeviceFailure.HOOK,
    ),
    "NVIDIA's runtime": (
        "OCI runtime create failed: could not apply required modification to OCI specification: no GPU",
        DeviceFailure.HOOK,
    ),
}
"""Why a runtime cannot give a container its devices."""
OTHER_TEXTS: Final = (
    'Back-off pulling image "registry.example.com/gpu=app:1"',
    'secret "token" not found',
    f'{_RUNC}exec: "train": executable file not found in $PATH: unknown',
    f'{_RUNC}error mounting "/var/lib/kubelet/pods/u/volumes/v" to rootfs at "/v": not a directory',
    f"{_RUNC}open /dev/console: operation not permitted",
    'Exec lifecycle hook ([/bin/false]) for Container "main" in Pod "p" failed - error: command exited with 1',
    "Internal PreStartContainer hook failed: no exclusive CPU",
    "failed to generate spec: get device path: /var/lib/kubelet/plugins/volumeDevices/v: not a device node",
)
"""Why a container waits for something else."""
KILL_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "the runtime does not stop a container": (
        (
            'error killing pod: [failed to "KillContainer" for "main" with KillContainerError: "rpc error: code = '
            'DeadlineExceeded desc = context deadline exceeded"]'
        ),
        "containers-stopping",
    ),
    "the runtime has gone": (
        (
            'error killing pod: failed to "KillPodSandbox" for "u" with KillPodSandboxError: "rpc error: code = '
            "Unavailable"
            ' desc = connection error: desc = "transport: Error while dialing: dial unix '
            "/run/containerd/containerd.sock: "
            'connect: connection refused""'
        ),
        "containers-stopping",
    ),
    "the plugin refuses": (
        "unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim p: the card does not answer",
        "unprepare-failed",
    ),
    "the plugin is away": (
        (
            "unprepare dynamic resources: NodeUnprepareResources: rpc error: code = Unavailable desc = connection "
            "error: "
            f'desc = "transport: Error while dialing: dial unix {SOCKET}: connect: connection refused"'
        ),
        "driver-absent",
    ),
    "the plugin is not registered": ("DRA driver gpu.kerf.dev is not registered on this node", "driver-absent"),
}
"""What a kubelet reports about a pod that it cannot end, with the code of the cause."""
