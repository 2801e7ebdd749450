"""The Node that the plugin runs on, read again while it runs.

A Node may be deleted and created again under its name (``kubectl delete node``, a kubelet that registers again): it is
another one then, and what the old one owned is garbage-collected, slices and inventories with its UID included, however
often they are created. Labels of a Node and the version of its kubelet change, too. The plugin may only read Nodes, so
it asks at intervals, and at once where a slice has been removed.
"""

import logging
from typing import Final

import anyio

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import AccessError, ApiError
from kerf_dra.driver.kubeletplugin.cluster.base import node_reference
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.problem_log import ProblemLog

LOOKS: Final = Backoff(first_s=60.0, factor=1, limit_s=60.0, jitter=0.5)
"""The times between two looks: 5,000 nodes make 70 reads a second in all, a tenth of what their kubelets write, and a
person who has labelled a node waits a minute or so."""
_ABSENT_S: Final = 5.0
"""Seconds between two looks at a Node that is absent, of which there are few: nothing is published until it is back."""
_LEAST_S: Final = 1.0
"""Seconds between two looks at least, however many slices are removed at once."""

_log = logging.getLogger(__name__)


class NodeWatch:
    """What is known of one Node, for all families of a process."""

    def __init__(self, client: Client, node: Node) -> None:
        """``node`` is the Node as it was read."""
        self.node = node
        """The Node as it was seen last; if it is absent, as it was before."""
        self.is_absent = False
        """Whether the API server said at the last look that there is no such Node."""
        self.changed = Notifier()
        """Notified when the Node has another UID, other labels or another kubelet, and when it goes or comes back."""
        self._client = client
        self._requested = Notifier()
        self._problems = ProblemLog(_log)

    def request(self) -> None:
        """Have the Node read again soon. Returns at once."""
        self._requested.notify()

    async def run(self, events: EventReporter) -> None:
        """Read the Node at intervals and when requested, until cancelled."""
        request = self._requested.next_event
        for delay_s in LOOKS.delays():
            with anyio.move_on_after((_ABSENT_S if self.is_absent else delay_s) - _LEAST_S):
                await request.wait()
            request = self._requested.next_event  # one that comes during the look is another one
            await self._look(events)
            await anyio.sleep(_LEAST_S)

    async def _look(self, events: EventReporter) -> None:
        try:
            found = await self._client.find(NODES, self.node.metadata.name)
        except (ApiError, AccessError) as error:
            self._problems.note("", f"cannot read Node {self.node.metadata.name} again: {error}")
            return
        self._problems.clear("")
        if found is None:
            self._note_absence(events)
        else:
            self._note(found, events)

    def _note_absence(self, events: EventReporter) -> None:
        if self.is_absent:
            return
        self.is_absent = True
        message = (
            f"Node {self.node.metadata.name} has been deleted while its kubelet plugin runs: its devices are not "
            "published until the kubelet has registered the Node again"
        )
        _log.error("%s", message)
        events.report(node_reference(self.node), type="Warning", reason="NodeDeleted", message=message)
        self.changed.notify()

    def _note(self, found: Node, events: EventReporter) -> None:
        before, was_absent, self.node, self.is_absent = self.node, self.is_absent, found, False
        if found.metadata.uid != before.metadata.uid:
            message = (
                f"Node {found.metadata.name} was deleted and created again (UID {found.metadata.uid}, before "
                f"{before.metadata.uid}): its devices are published again, owned by the new Node"
            )
            _log.warning("%s", message)
            events.report(node_reference(found), type="Normal", reason="NodeReplaced", message=message)
        if was_absent or _facts(found) != _facts(before):
            self.changed.notify()


def _facts(node: Node) -> tuple[object, ...]:
    """Return what the plugin decides by."""
    return (node.metadata.uid, node.metadata.labels, node.status.node_info.kubelet_version)
