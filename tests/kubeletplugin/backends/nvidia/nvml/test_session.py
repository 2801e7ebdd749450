"""NVML is opened as a whole or not at all, and the first error is the one that is said."""

import pytest

from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.session import _read_version


class Bindings:
    """Bindings whose library opens and then fails at everything."""

    class NVMLError(Exception):
        """The error of the bindings."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def nvmlSystemGetDriverVersion(self) -> str:
        self.calls.append("version")
        raise self.NVMLError("Unknown Error")

    def nvmlShutdown(self) -> None:
        self.calls.append("shutdown")
        raise self.NVMLError("Uninitialized")


def test_what_fails_after_the_opening_ends_it_and_is_said_though_the_end_fails_too() -> None:
    bindings = Bindings()
    with pytest.raises(Bindings.NVMLError, match="Unknown Error"):
        _read_version(bindings)
    assert bindings.calls == ["version", "shutdown"]
