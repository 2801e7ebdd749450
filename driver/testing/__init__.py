"""The contract suite for backends: pytest classes that a vendor runs against his own backend.

Terms: a *machine under test* (``machine``) is a host with the vendor's cards, in which the backend is opened again and
again, as new processes of the kubelet plugin do; a *plugin stand-in* (``plugin``) calls the backend by the plugin's own
rules and keeps its records; a *journal* (``journal``) kills the process at a chosen write. ``contract`` has the rules,
each a test whose name says it; those of a release are in ``release_contract``, those of samples in
``sample_contract``, those of cards in maintenance in ``maintenance_contract``.

A vendor writes, in a test module of his own (``pip install '.[testing]'`` in Kerf's checkout has what it needs)::

    class TestMyBackend(BackendContract):
        family = MY_FAMILY

        def new_machine(self, folder: Path) -> MachineUnderTest:
            return MyMachine(folder)

Nothing here needs Kubernetes, and no program of Kerf's imports it. ``nvml`` is a stand-in for NVIDIA's management
library, which needs no pytest: what the suite imports is imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerf_dra.driver.testing.contract import BackendContract
    from kerf_dra.driver.testing.journal import KillableJournal, ProcessKilled
    from kerf_dra.driver.testing.machine import MachineUnderTest

__all__ = ["BackendContract", "KillableJournal", "MachineUnderTest", "ProcessKilled"]

_MODULES = {
    "BackendContract": "contract",
    "KillableJournal": "journal",
    "MachineUnderTest": "machine",
    "ProcessKilled": "journal",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562)
    """Import the suite, with assertions that show the values which they compare, as those of test modules do."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    contracts = ("contract", "maintenance_contract", "release_contract", "sample_contract")
    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in contracts))
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
