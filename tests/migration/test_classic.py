"""Parts of a classic class without an equivalent are reported, never left out silently."""

import pytest

from kerf_dra.api.kerf.classic_parameters import (
    ClaimParameters,
    ClassParameters,
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
    GpuMinimum,
)
from kerf_dra.api.kerf.v1alpha1 import GpuSharing
from kerf_dra.api.model.classic import (
    ClassicClaimSpec,
    ClassicClass,
    ClassicRequest,
    ClassicTemplate,
    ClassicTemplateSpec,
)
from kerf_dra.api.model.metadata import NodeSelector, ObjectMeta
from kerf_dra.driver.migration.classic import migrate_class, migrate_template

PLAIN = ClassicClass(metadata=ObjectMeta(name="gpu"), driver_name="gpu.kerf.dev")
ANYWHERE = ClassicClass(
    metadata=ObjectMeta(name="gpu"), driver_name="gpu.kerf.dev", suitable_nodes=NodeSelector(node_selector_terms=())
)


@pytest.mark.parametrize(
    ("held", "class_spec", "words"),
    [
        (PLAIN, GpuClassParametersSpec(max_pods=4), "maxPods: 4 has no equivalent"),
        (PLAIN, FpgaClassParametersSpec(max_pods=32, min_driver_version="5.1.2.3"), "only the first three numbers"),
        (PLAIN, GpuClassParametersSpec(max_pods=32, claims_may_override=("size",)), "claimsMayOverride has no"),
        (PLAIN, GpuClassParametersSpec(max_pods=32, monitor=True), "its claims need adminAccess"),
        (PLAIN, GpuClassParametersSpec(max_pods=32, allow_whole=True), "a class of their own, gpu-whole"),
        (ANYWHERE, GpuClassParametersSpec(max_pods=32), "suitableNodes has no equivalent"),
    ],
)
def test_what_has_no_equivalent_is_said(held: ClassicClass, class_spec: ClassParameters, words: str) -> None:
    made = migrate_class(held, class_spec)
    (remark,) = (*made.remarks, *made.left)
    assert bool(made.left) is ("has no" in remark or "only the first" in remark)
    assert remark.startswith("ResourceClass gpu: ")
    assert words in remark


def test_where_everything_has_an_equivalent_nothing_is_said() -> None:
    assert migrate_class(PLAIN, GpuClassParametersSpec(profile="1g.10gb", max_pods=32)).left == ()


@pytest.mark.parametrize(
    ("parameters", "driver", "selected"),
    [
        (
            GpuClaimParametersSpec(profile="1g.10gb", sharing=GpuSharing(strategy="Mps")),
            "gpu.kerf.dev",
            ["mps == true", 'profile == "1g.10gb"'],
        ),
        (
            FpgaClaimParametersSpec(function="aes-gcm", release="Keep"),
            "fpga.kerf.dev",
            ['function == "aes-gcm"'],
        ),
    ],
)
def test_a_claims_selectors_and_configuration_are_for_the_driver_of_its_devices(
    parameters: ClaimParameters, driver: str, selected: list[str]
) -> None:
    spec = ClassicClaimSpec(requests=(ClassicRequest(class_name="any"),))
    template = ClassicTemplate(metadata=ObjectMeta(name="any"), spec=ClassicTemplateSpec(spec=spec))
    [document] = migrate_template(template, parameters).documents
    devices = document["spec"]["spec"]["devices"]
    expressions = [selector["cel"]["expression"] for selector in devices["requests"][0]["exactly"]["selectors"]]
    assert expressions == [f'device.attributes["{driver}"].{condition}' for condition in selected]
    assert devices["config"][0]["opaque"]["driver"] == driver


def test_a_least_driver_version_and_whole_cards_are_said_by_the_class_itself() -> None:
    by_size = GpuClassParametersSpec(
        minimum=GpuMinimum(compute_slices=2), allow_whole=True, min_driver_version="550.54.15.1"
    )
    sizes, whole = (document["spec"] for document in migrate_class(PLAIN, by_size).documents)
    versioned = {"device": "gpu", "minimumDriverVersion": "550.54.15"}
    assert sizes == versioned | {"minimum": {"computeSlices": 2}, "orWhole": True}
    assert whole == versioned | {"cut": "Whole"}
    exact = GpuClassParametersSpec(profile="1g.10gb", allow_whole=True)
    assert "orWhole" not in migrate_class(PLAIN, exact).documents[0]["spec"], "a profile is an exact size"
