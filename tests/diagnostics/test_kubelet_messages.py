"""What kubelets and container runtimes report of devices: whose error it is, and what ends it."""

import pytest

from kerf_dra.driver.diagnostics.devices.runtime_messages import find_cdi_names, find_device_failure
from kerf_dra.driver.diagnostics.explain.events.kubelet_messages import (
    classify_message,
    is_plugin_away,
    is_runtime_failure,
)
from kerf_dra.driver.diagnostics.explain.report import CauseCode
from tests.fakes.kubelet_texts import DEVICE_TEXTS, KILL_TEXTS, OTHER_TEXTS, PREPARE_TEXTS


@pytest.mark.parametrize(("message", "code"), PREPARE_TEXTS.values(), ids=PREPARE_TEXTS.keys())
def test_only_texts_of_calls_to_a_plugin_point_at_it(message: str, code: str) -> None:
    found = classify_message(message)
    assert found.code == code
    points_at_plugin = "log of the driver's plugin" in found.step or "start the driver's plugin" in found.step
    assert points_at_plugin == (code in {"driver-absent", "prepare-slow", "prepare-failed"})


def test_what_ends_an_error_of_the_kubelet_depends_on_the_error() -> None:
    errors = [message for message, code in PREPARE_TEXTS.values() if code == CauseCode.KUBELET_ERROR]
    assert len({classify_message(message).step for message in errors}) >= len(errors) - 3  # releases differ in words


def test_an_unknown_error_of_the_kubelet_is_its_own() -> None:
    found = classify_message("the topology manager has no room")
    assert (found.code, found.is_fault) == (CauseCode.KUBELET_ERROR, True)
    assert "log of the kubelet" in found.step


@pytest.mark.parametrize(("message", "code"), KILL_TEXTS.values(), ids=KILL_TEXTS.keys())
def test_an_end_that_the_runtime_refuses_is_not_a_plugins_fault(message: str, code: str) -> None:
    assert is_runtime_failure(message) == (code == "containers-stopping")
    assert is_plugin_away(message) == (code == "driver-absent")


@pytest.mark.parametrize(("message", "failure"), DEVICE_TEXTS.values(), ids=DEVICE_TEXTS.keys())
def test_what_a_runtime_says_of_devices_is_recognized(message: str, failure: str) -> None:
    assert find_device_failure(message) == failure


@pytest.mark.parametrize("message", OTHER_TEXTS)
def test_what_a_runtime_says_of_other_things_is_not_about_devices(message: str) -> None:
    assert find_device_failure(message) is None


def test_the_cdi_names_in_a_message_are_found_once_each() -> None:
    message = (
        "unresolvable CDI devices k8s.gpu.intel.com/gpu=abc-gpu-0, vendor.com/net=a:1, k8s.gpu.intel.com/gpu=abc-gpu-0"
    )
    assert find_cdi_names(message) == ("k8s.gpu.intel.com/gpu=abc-gpu-0", "vendor.com/net=a:1")
