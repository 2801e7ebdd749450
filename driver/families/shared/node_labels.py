"""The label of DiscoveredDevices by which a node follows its own and the shared ones: not those of thousands of others.

The plugin that makes an object writes it, and the controller where it is missing or another one.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from kerf_dra.api.kerf.discovery_objects import DiscoveredDeviceSpec

NODE_LABEL: Final = "kerf.dev/node"
"""The label's key."""
SHARED_VALUE: Final = "Shared"
"""The label's value for shared devices: names of nodes have lower-case letters."""
_MAX_LABEL: Final = 63
"""The most characters of a label's value."""
_DIGEST_PREFIX: Final = "sha256-"


def make_node_label(node: str) -> str:
    """Return the label's value for a device of one node: its name, or a digest of one that is too long for a label."""
    return node if len(node) <= _MAX_LABEL else f"{_DIGEST_PREFIX}{hashlib.sha256(node.encode()).hexdigest()[:32]}"


def make_labels(node: str, *, shared: bool) -> dict[str, str]:
    """Return the labels of a device that ``node`` sees."""
    return {NODE_LABEL: SHARED_VALUE if shared else make_node_label(node)}


def find_labeled_node(labels: Mapping[str, str]) -> str | None:
    """Return the node whose label a device has; None: the label is missing, that of a shared device, or a digest."""
    value = labels.get(NODE_LABEL, SHARED_VALUE)
    return None if value == SHARED_VALUE or value.startswith(_DIGEST_PREFIX) else value


def find_missing_labels(spec: DiscoveredDeviceSpec, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a device with ``labels`` lacks; one that no node sees needs none."""
    wanted = make_labels(spec.nodes[0], shared=spec.shared) if spec.nodes else {}
    return {} if wanted.items() <= labels.items() else wanted


def make_selector(node: str) -> str:
    """Return the label selector of the devices that ``node`` may see: its own, and shared ones."""
    return f"{NODE_LABEL} in ({SHARED_VALUE},{make_node_label(node)})"
