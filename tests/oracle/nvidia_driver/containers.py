"""What containers get of a claim's devices, by the CDI files of a driver."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerf_dra.cdi import Cache, ContainerEdits, requested_edits
from tests.oracle.nvidia_driver.differences import Comparison, compare_mappings


@dataclass(frozen=True)
class ContainerContent:
    """The edits of a container; paths of the machine's folder are relative to it."""

    nodes: Mapping[str, str]
    """Kinds of device nodes by path. Numbers are those of ``/dev/null``, as a stand-in's nodes are; a capability's
    number is in its path."""
    variables: Mapping[str, str]
    mounts: Mapping[str, str]
    """Paths on the host, without links, by path in the container."""
    hooks: Mapping[str, str]
    """Arguments by the name of the hook."""

    @classmethod
    def of(cls, edits: ContainerEdits, machine: Path) -> "ContainerContent":
        return cls(
            nodes={node.path: node.type or "c" for node in edits.device_nodes},
            variables=dict(entry.partition("=")[::2] for entry in edits.env),
            mounts={
                mount.container_path: str(Path(mount.host_path).resolve()).removeprefix(str(machine))
                for mount in edits.mounts
            },
            hooks={hook.args[1]: " ".join(hook.args[2:]) for hook in edits.hooks},
        )


def read_containers(cdi_dir: Path, machine: Path, devices: Iterable[Any]) -> dict[str, ContainerContent]:
    """Return what each container gets, by the request whose devices it has. Raises UnresolvedError."""
    catalog = Cache([cdi_dir]).catalog
    names: dict[str, list[str]] = {}
    for device in devices:
        for request in device.request_names:
            names.setdefault(request, []).extend(device.cdi_device_ids)
    return {request: ContainerContent.of(requested_edits(catalog, each), machine) for request, each in names.items()}


def list_claims(cdi_dir: Path, uids: Mapping[str, str]) -> dict[str, str]:
    """Return which of the claims, whose UIDs these are by name, have a CDI file."""
    files = [file.name for file in cdi_dir.iterdir()]
    return {name: "yes" for name, uid in uids.items() if any(uid in file for file in files)}


def compare_containers(subject: str, nvidia: ContainerContent, kerf: ContainerContent) -> Iterator[Comparison]:
    """Compare device nodes, environment, mounts and hooks of a container."""
    yield from compare_mappings(subject, "node", nvidia.nodes, kerf.nodes)
    yield from compare_mappings(subject, "variable", nvidia.variables, kerf.variables)
    yield from compare_mappings(subject, "mount", nvidia.mounts, kerf.mounts)
    yield from compare_mappings(subject, "hook", nvidia.hooks, kerf.hooks)
