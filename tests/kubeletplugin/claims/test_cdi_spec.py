"""CDI specs of claims: names that nobody else has, valid for old runtimes, nothing for devices without edits."""

from kerf_dra import cdi
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.kubeletplugin.claims import cdi_spec
from tests.kubeletplugin.records import device

CLAIM = ClaimRef("default", "training", "6f0c1b1e-0f6e-4a43-9a51-6a1c9d4a7c01")
EDITS = cdi.ContainerEdits(env=("A=1",))
NONE = cdi.ContainerEdits()


def test_a_claim_has_one_file_of_its_own() -> None:
    assert (
        cdi_spec.file_name("gpu.kerf.dev", CLAIM.uid) == "k8s.gpu.kerf.dev-claim_6f0c1b1e-0f6e-4a43-9a51-6a1c9d4a7c01"
    )
    assert cdi_spec.file_name("gpu.kerf.dev", CLAIM.uid).startswith(cdi_spec.file_prefix("gpu.kerf.dev"))


def test_devices_carry_the_claim_in_their_names_and_the_edits_themselves() -> None:
    devices = [device("gpu-0"), device("gpu-1", share="8f6c")]
    spec = cdi_spec.build_spec("gpu.kerf.dev", CLAIM, devices, [EDITS, EDITS], {})
    assert spec is not None
    assert spec.container_edits == NONE
    assert [(member.name, member.container_edits) for member in spec.devices] == [
        (f"claim-{CLAIM.uid}-gpu-0", EDITS),
        (f"claim-{CLAIM.uid}-gpu-1-8f6c", EDITS),
    ]
    assert not cdi.validate(spec)
    assert cdi.minimum_version(spec).version == "0.3.0"
    named = cdi_spec.add_cdi_ids(CLAIM, devices, spec)
    assert [device.cdi_ids for device in named] == [
        (f"k8s.gpu.kerf.dev/claim=claim-{CLAIM.uid}-gpu-0",),
        (f"k8s.gpu.kerf.dev/claim=claim-{CLAIM.uid}-gpu-1-8f6c",),
    ]


def test_a_device_without_edits_is_left_out_because_it_would_make_the_whole_file_invalid() -> None:
    devices = [device("gpu-0"), device("gpu-1")]
    spec = cdi_spec.build_spec("gpu.kerf.dev", CLAIM, devices, [NONE, EDITS], {})
    assert spec is not None
    assert [member.name for member in spec.devices] == [f"claim-{CLAIM.uid}-gpu-1"]
    assert [bool(device.cdi_ids) for device in cdi_spec.add_cdi_ids(CLAIM, devices, spec)] == [False, True]


def test_no_device_with_edits_needs_no_file() -> None:
    assert cdi_spec.build_spec("gpu.kerf.dev", CLAIM, [device()], [NONE], {}) is None
    assert cdi_spec.add_cdi_ids(CLAIM, [device()], None)[0].cdi_ids == ()
