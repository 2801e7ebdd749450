"""What Kerf's plugin needs of its node: the facts, and the checks over them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kerf_dra.api.core.v1 import NodeSetup
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.diagnostics.preflight.cluster import check_clock, check_kubelet
from kerf_dra.driver.diagnostics.preflight.container_runtime import CHECK as RUNTIME
from kerf_dra.driver.diagnostics.preflight.container_runtime import check_containerd_config, check_runtime_version
from kerf_dra.driver.diagnostics.preflight.other_drivers import (
    check_drivers,
    check_own_device_plugin,
    check_registrations,
)
from kerf_dra.driver.diagnostics.preflight.permissions import AccountReview, check_permissions
from kerf_dra.driver.diagnostics.preflight.results import (
    CheckResult,
    PreflightReport,
    Unread,
    ok,
    problem,
    unread,
    warning,
)

_FEW_BYTES: Final = 64 * 2**20
"""Below this a folder of state is warned about: a checkpoint of 500 claims has 2 MiB, with its log twice that."""
_TOO_FEW_BYTES: Final = 4 * 2**20
"""Below this the checkpoint cannot be written for sure, and no claim is prepared."""
_FEW_FILES: Final = 100
"""Below this many free inodes one busy node may run out: each prepared claim is a file."""
SIMULATED: Final = frozenset({"simulated", "nvidia-fake"})
"""The backends of Kerf whose cards do not exist, so that no other driver hands them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """A folder that the plugin writes to, or the nearest one above it that exists."""

    path: str
    use: str
    """What it is for, as in messages."""
    exists: bool
    is_writable: bool
    file_system: int
    """The number of its device: folders on one have their space in common."""
    free_bytes: int
    free_files: int | None
    """Free inodes; None: the file system has no fixed number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFacts:
    """The folder of programs that CardMaintenances may have run."""

    path: str
    names: tuple[str, ...]
    """Those that can be run."""
    problems: tuple[str, ...]
    """Why the folder, or what is in it, cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """One card, as its backend surveys it."""

    name: str
    model: str
    no_whole: str
    """Why it is not available as a whole card; empty: it can."""
    no_partitions: str
    """Why it cannot be cut, such as its MIG mode; empty: it can."""
    unhealthy: tuple[str, ...]
    others: tuple[str, ...]
    """The partitions on it that no claim of Kerf's has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistedCardFacts:
    """A card on the node's bus that its family's backends do not list."""

    description: str
    """Its address, ids and driver, and why it is not listed."""
    next_step: str
    is_expected: bool
    """Whether it looks intended, as for a virtual machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFacts:
    """The cards of one family."""

    driver: str
    backends: tuple[str, ...]
    cards: tuple[CardFacts, ...]
    problems: tuple[str, ...]
    """What failed: a backend that does not open, a card that cannot be surveyed, records that cannot be read."""
    unlisted: tuple[UnlistedCardFacts, ...] = ()
    """The cards on the node's bus that the backends do not list."""
    kept_out: tuple[str, ...] = ()
    """The cards that are not to be published, with the reason and who has some of them."""
    unknown: tuple[str, ...] = ()
    """The cards that are included or excluded and not there, as ``BACKEND=CARD``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerFacts:
    """What the API server says of this node."""

    node: NodeSetup | Unread
    slices: Sequence[ResourceSlice] | Unread
    """Those of this node, of all drivers; empty where drivers allocate."""
    review: AccountReview | None
    """What the caller may do; None: it is a person's account, not the plugin's."""
    is_classic: bool
    skew_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What was read of a node."""

    node_name: str
    """Empty where it has no name."""
    boot_id: str | Unread
    long_sockets: tuple[str, ...]
    """The sockets whose paths are too long."""
    folders: tuple[FolderFacts, ...]
    pod_resources: str
    """The kubelet's socket at which it lists what pods use."""
    has_pod_resources: bool
    cdi_dir: str
    runtime_config: Mapping[str, Any] | Unread | None
    """Containerd's configuration; None: there is no file."""
    runtime_config_path: str
    hardware: tuple[HardwareFacts, ...] | None
    """None: no backend is named."""
    registered: tuple[str, ...]
    """The drivers whose registration sockets for the kubelet answer."""
    api_server: ApiServerFacts | Unread | None
    """None: the API server was not asked."""
    hooks: HookFacts | None = None
    """None: no folder of hooks is named."""


def check_node(facts: NodeFacts) -> PreflightReport:
    """Return all results, in the order of ``_CHECKS``."""
    results = tuple(result for check in _CHECKS for result in check(facts))
    return PreflightReport(subject=f"node {facts.node_name}".strip(), results=results)


def _check_kernel(facts: NodeFacts) -> Iterator[CheckResult]:
    if isinstance(facts.boot_id, Unread):
        yield problem(
            "kernel",
            f"the boot ID cannot be read ({facts.boot_id.reason}): the plugin needs it to recognize reboots",
            "Kerf needs Linux, with /proc in the container",
        )
    else:
        yield ok("kernel", f"Linux, boot {facts.boot_id}")


def _check_folders(facts: NodeFacts) -> Iterator[CheckResult]:
    for folder in facts.folders:
        if not folder.is_writable:
            yield problem(
                "folders",
                f"{folder.path} ({folder.use}) cannot be written to",
                "run as root, and mount it from the host, as deploy/manifests do",
            )
        elif not folder.exists:
            yield ok("folders", f"{folder.path} ({folder.use}) does not exist yet, and can be made")
        else:
            yield ok("folders", f"{folder.path} ({folder.use}) can be written to")
    for path in facts.long_sockets:
        yield problem("folders", path, "shorten it with --kubelet-root")


def _check_hooks(facts: NodeFacts) -> Iterator[CheckResult]:
    if facts.hooks is None:
        return
    for reason in facts.hooks.problems:
        yield problem(
            "hooks", reason, "give the folder, those above and the programs to root, and no other a right to write"
        )
    if not facts.hooks.problems:
        names = list_names(facts.hooks.names) or "none"
        yield ok("hooks", f"only root may write {facts.hooks.path}; programs that may be run: {names}")


def _check_disk(facts: NodeFacts) -> Iterator[CheckResult]:
    for folder in {folder.file_system: folder for folder in reversed(facts.folders)}.values():
        free = f"{folder.path} ({folder.use}) has {_format_size(folder.free_bytes)} free"
        step = "free space on its file system, or move it with --state-dir or --cdi-dir"
        if folder.free_bytes < _TOO_FEW_BYTES:
            yield problem("disk", f"{free}: no claim can be prepared without a record of it", step)
        elif folder.free_bytes < _FEW_BYTES:
            yield warning("disk", f"{free}, which is little", step)
        elif folder.free_files is not None and folder.free_files < _FEW_FILES:
            yield warning("disk", f"{folder.path} ({folder.use}) has {folder.free_files} inodes free", step)
        else:
            yield ok("disk", free)


def _format_size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size // 2**20} MiB"


def _check_pod_resources(facts: NodeFacts) -> Iterator[CheckResult]:
    if facts.has_pod_resources:
        yield ok("pod-resources", f"the kubelet's socket {facts.pod_resources} is there")
    else:
        yield warning(
            "pod-resources",
            f"there is no socket {facts.pod_resources}: what forgotten claims held is released only once the API "
            "server has forgotten them too",
            "mount the folder from the host, or name the kubelet's --root-dir with --kubelet-root",
        )


def _check_runtime(facts: NodeFacts) -> Iterator[CheckResult]:
    server = facts.api_server
    version = ""
    if isinstance(server, ApiServerFacts) and isinstance(server.node, NodeSetup):
        version = server.node.status.node_info.container_runtime_version
    config = facts.runtime_config
    if isinstance(config, Mapping):
        yield check_containerd_config(config, path=facts.runtime_config_path, cdi_dir=facts.cdi_dir, version=version)
    elif version:
        yield check_runtime_version("this node", version)
    else:
        reason = config.reason if isinstance(config, Unread) else "there is no such file"
        yield warning(
            RUNTIME,
            f"it is not known whether the runtime applies CDI devices ({facts.runtime_config_path}: {reason})",
            "name containerd's configuration with --containerd-config; CRI-O from 1.23 on needs none",
        )


def _check_hardware(facts: NodeFacts) -> Iterator[CheckResult]:
    if facts.hardware is None:
        yield warning("hardware", "no --backend is named, so no card was checked", "name the plugin's --backend")
        return
    for family in facts.hardware:
        for reason in family.problems:
            yield problem(
                "hardware",
                f"{family.driver}, backend {', '.join(family.backends)}: {reason}",
                "resolve what the message says; `kerf devices` with the same options shows more",
            )
        if not family.problems:
            yield ok("hardware", f"{family.driver}: {_count_models(family) or 'no card'}")
    if not any(family.cards or family.problems or family.kept_out for family in facts.hardware):
        yield problem(
            "hardware",
            "there is no card on this node",
            "let the plugin run on nodes with cards only (node selector), or check the vendor's driver",
        )


def _count_models(family: HardwareFacts) -> str:
    models = [card.model for card in family.cards]
    return ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))


def _cards(facts: NodeFacts) -> Iterator[CardFacts]:
    for family in facts.hardware or ():
        yield from family.cards


def _check_unlisted(facts: NodeFacts) -> Iterator[CheckResult]:
    unlisted = [(family.driver, card) for family in facts.hardware or () for card in family.unlisted]
    for driver, card in unlisted:
        message = f"{driver} does not have the card {card.description}"
        if card.is_expected:
            yield ok("unlisted-cards", f"{message}; {card.next_step}")
        else:
            yield warning("unlisted-cards", message, card.next_step)
    if not unlisted and any(_cards(facts)):
        yield ok("unlisted-cards", "the backends list every card on the node's bus")


def _check_kept_out(facts: NodeFacts) -> Iterator[CheckResult]:
    for family in facts.hardware or ():
        for card in family.kept_out:
            yield ok("kept-out-cards", f"{family.driver} does not publish {card}")
        for entry in family.unknown:
            yield warning(
                "kept-out-cards",
                f"{entry} is included or excluded, and there is no such card",
                "correct --include-card and --exclude-card, unless the card is to come later",
            )


def _check_partitions(facts: NodeFacts) -> Iterator[CheckResult]:
    for card in _cards(facts):
        if card.no_partitions and card.no_whole:
            yield problem(
                "partitions",
                f"card {card.name} is not available at all: whole, because {card.no_whole}; in partitions, because "
                f"{card.no_partitions}",
                "resolve one of them (docs/nvidia.md)",
            )
        elif card.no_partitions:
            yield warning(
                "partitions",
                f"card {card.name} is available whole only: {card.no_partitions}",
                "switch the card's mode if you want partitions of it (docs/nvidia.md)",
            )
        elif card.no_whole:
            yield warning(
                "partitions",
                f"card {card.name} is available in partitions only: {card.no_whole}",
                "switch the card's mode if you want it whole (docs/nvidia.md)",
            )
        else:
            yield ok("partitions", f"card {card.name} is available whole and in partitions")


def _check_health(facts: NodeFacts) -> Iterator[CheckResult]:
    ill = [(card.name, reason) for card in _cards(facts) for reason in card.unhealthy]
    for name, reason in ill:
        yield warning("health", f"card {name}: {reason}", "repair it; claims get the other cards meanwhile")
    if not ill and any(_cards(facts)):
        yield ok("health", "no card is unhealthy")


def _check_others(facts: NodeFacts) -> Iterator[CheckResult]:
    held = [(card.name, other) for card in _cards(facts) for other in card.others]
    for name, other in held:
        yield warning(
            "held-hardware",
            f"card {name}: {other} is in use outside of Kerf, and Kerf leaves it alone",
            "remove it if it is not needed (docs/held-hardware.md)",
        )
    if not held and any(_cards(facts)):
        yield ok("held-hardware", "no part of a card is in use outside of Kerf")


def _check_registrations(facts: NodeFacts) -> Iterator[CheckResult]:
    yield from check_registrations(facts.registered, _find_real_drivers(facts))


def _find_real_drivers(facts: NodeFacts) -> list[str]:
    """Return the drivers whose cards exist."""
    return [family.driver for family in facts.hardware or () if not SIMULATED.issuperset(family.backends)]


def _check_api_server(facts: NodeFacts) -> Iterator[CheckResult]:
    server = facts.api_server
    if server is None:
        return
    if isinstance(server, Unread):
        yield warning(
            "api-server",
            f"the API server was not reached: {server.reason}",
            "check the network and --kubeconfig; the plugin waits until the API server answers",
        )
        return
    yield ok("api-server", "the API server answers")
    if server.review is not None:
        yield from check_permissions([server.review])
    if isinstance(server.node, Unread):
        yield unread("node", f"node {facts.node_name}", server.node)
    else:
        version = server.node.status.node_info.kubelet_version
        yield check_kubelet("this node", version, is_classic=server.is_classic)
        yield from check_own_device_plugin(server.node, _find_real_drivers(facts))
    if isinstance(server.slices, Unread):
        yield unread("other-drivers", "ResourceSlices", server.slices)
    elif not server.is_classic:
        yield from check_drivers(server.slices, {family.driver for family in facts.hardware or ()})
    yield check_clock(server.skew_s)


_CHECKS: Final[Sequence[Callable[[NodeFacts], Iterator[CheckResult]]]] = (
    _check_kernel,
    _check_folders,
    _check_hooks,
    _check_disk,
    _check_pod_resources,
    _check_runtime,
    _check_hardware,
    _check_unlisted,
    _check_kept_out,
    _check_partitions,
    _check_health,
    _check_others,
    _check_registrations,
    _check_api_server,
)
