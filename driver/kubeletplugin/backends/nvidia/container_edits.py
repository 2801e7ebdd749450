"""What containers get of the driver and of their devices, as CDI container edits. Pure.

The edits are those of ``nvidia-ctk cdi generate`` (nvidia-container-toolkit v1.20), except for three things. The nodes'
owner is left to the runtime, which gives them to the container's user; the host's group would need CDI 0.7.0. The
cgroup allows no mknod. ``NVIDIA_VISIBLE_DEVICES=void`` keeps NVIDIA's own runtime from adding every GPU to a container
that an image's environment asks for.

Hooks are subcommands of ``nvidia-cdi-hook`` of v1.20 or later, a program on the host that the runtime runs before the
container's first process. Each does the same when it runs again, as it does in a container with two devices.
"""

from collections.abc import Iterable
from typing import Final

from kerf_dra.cdi import ContainerEdits, DeviceNode, Hook, Mount
from kerf_dra.driver.kubeletplugin.backends.nvidia.device_nodes import GpuNodes
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import DriverFiles, SymbolicLink

_FILE_OPTIONS: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS: Final = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
"""A socket that is mounted read-only cannot be connected to."""
_SHARED_OPTIONS: Final = ("rw", "nosuid", "nodev", "rbind", "rprivate")
_MPS_PIPES: Final = "/tmp/nvidia-mps"  # noqa: S108  (CUDA's own default)
_STAGE: Final = "createContainer"
"""In the container's mount namespace, before its root is the container's (OCI runtime-spec): host programs run, and see
its mounts."""


def build_driver_edits(driver: DriverFiles, control_nodes: tuple[DeviceNode, ...], hook_path: str) -> ContainerEdits:
    """Build what every container with a GPU of this node gets. ``hook_path`` is nvidia-cdi-hook on the host."""
    files = (*driver.libraries, *driver.files)
    mounts = [(file, _FILE_OPTIONS) for file in files] + [(socket, _SOCKET_OPTIONS) for socket in driver.sockets]
    folders = dict.fromkeys(file.container_path.rpartition("/")[0] or "/" for file in driver.libraries)
    return ContainerEdits(
        env=("NVIDIA_VISIBLE_DEVICES=void", f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(driver.library_folders)}"),
        device_nodes=control_nodes,
        mounts=tuple(
            Mount(host_path=file.host_path, container_path=file.container_path, options=options)
            for file, options in mounts
        ),
        hooks=(
            *_link_hooks(hook_path, driver.links),
            _hook(hook_path, "enable-cuda-compat", f"--host-driver-version={driver.version}"),
            # After the links and the folder of newer CUDA libraries, which the linker's cache is to have.
            _hook(hook_path, "update-ldcache", *_repeat("--folder", folders)),
            _hook(hook_path, "disable-device-node-modification"),
            _hook(hook_path, "update-application-profile"),
        ),
    )


def build_gpu_edits(gpu: GpuNodes, hook_path: str) -> ContainerEdits:
    """Build what a container with a whole GPU gets beside the driver."""
    return ContainerEdits(device_nodes=(gpu.card, *gpu.drm), hooks=_link_hooks(hook_path, gpu.links))


def build_mig_edits(
    gpu: GpuNodes, instance_nodes: tuple[DeviceNode, ...], hook_path: str, *, is_graphics: bool
) -> ContainerEdits:
    """Build what a container with a MIG device gets beside the driver: the card's node, which opens nothing without
    the nodes of the instance's capabilities. ``is_graphics``: the profile renders (``+gfx``).
    """
    whole = build_gpu_edits(gpu, hook_path) if is_graphics else ContainerEdits(device_nodes=(gpu.card,))
    return whole + ContainerEdits(device_nodes=instance_nodes)


def build_admin_edits(gpu: GpuNodes, monitor_node: DeviceNode | None, hook_path: str) -> ContainerEdits:
    """Build what a container with admin access to a card gets beside the driver: the whole card, and the view of all
    its MIG instances. Nothing lets it create or remove any.
    """
    monitor = () if monitor_node is None else (monitor_node,)
    return build_gpu_edits(gpu, hook_path) + ContainerEdits(device_nodes=monitor)


def build_mps_edits(
    pipe: str, shared_memory: str, active_thread_percentage: int | None, pinned_memory_mib: int | None
) -> ContainerEdits:
    """Build what clients of an MPS daemon get: the folders of its sockets and of its shared memory, and their limits.

    A client may lower its limits; the daemon has them, too, so that it cannot raise them beyond the largest of all
    clients'. The device is number 0 in its container: there is no other with MPS.
    """
    env = [f"CUDA_MPS_PIPE_DIRECTORY={_MPS_PIPES}"]
    if active_thread_percentage is not None:
        env.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={active_thread_percentage}")
    if pinned_memory_mib is not None:
        env.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={pinned_memory_mib}M")
    mounts = ((pipe, _MPS_PIPES), (shared_memory, "/dev/shm"))  # noqa: S108
    return ContainerEdits(
        env=tuple(env),
        mounts=tuple(Mount(host_path=path, container_path=to, options=_SHARED_OPTIONS) for path, to in mounts),
    )


def _link_hooks(hook_path: str, links: Iterable[SymbolicLink]) -> tuple[Hook, ...]:
    arguments = _repeat("--link", (f"{link.target}::{link.path}" for link in links))
    return (_hook(hook_path, "create-symlinks", *arguments),) if arguments else ()


def _hook(path: str, *arguments: str) -> Hook:
    name = path.rpartition("/")[2]
    return Hook(hook_name=_STAGE, path=path, args=(name, *arguments), env=("NVIDIA_CTK_DEBUG=false",))


def _repeat(flag: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(argument for value in values for argument in (flag, value))
