"""The contract suite for backends: pytest classes that a vendor runs against his own backend.

Terms: a *machine under test* (``machine``) is a host with the vendor's cards, in which the backend is opened again and
again, as new processes of the kubelet plugin do; a *plugin stand-in* (``plugin``) calls the backend by the plugin's own
rules and keeps its records; a *journal* (``journal``) kills the process at a chosen write. ``contract`` has the rules,
each a test whose name says it.

A vendor writes, in a test module of his own (pytest and hypothesis are in the extra ``kerf[testing]``)::

    class TestMyBackend(BackendContract):
        family = MY_FAMILY

        def new_machine(self, folder: Path) -> MachineUnderTest:
            return MyMachine(folder)

Nothing here needs Kubernetes, and no program of Kerf's imports it.
"""

import pytest

# Before the module is imported: its assertions are to show the values that they compare, as those of test modules do.
pytest.register_assert_rewrite("driver.testing.contract")

from driver.testing.contract import BackendContract  # noqa: E402
from driver.testing.journal import KillableJournal, ProcessKilled  # noqa: E402
from driver.testing.machine import MachineUnderTest  # noqa: E402

__all__ = ["BackendContract", "KillableJournal", "MachineUnderTest", "ProcessKilled"]
