"""The policy on a family's parameters gives the verdict of the decoder, with the path of every problem."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_device_config
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, GpuConfig, Strict
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.parameter_policy import UnsupportedTypeError, build_parameter_policy
from tests.api.kerf.documents import damaged_documents, documents
from tests.families.parameter_cases import ACME_FAMILY, CASES, AcmeConfig, ParameterCase
from tests.local.apiserver.policy_server import PolicyServer

VERSION = "kerf.dev/v1alpha1"
Json = dict[str, Any]


FAMILIES: Mapping[str, Family] = {family.driver: family for family in (GPU, FPGA, ACME_FAMILY)}


def in_force(families: Iterable[Family]) -> PolicyServer:
    """Policies that refuse what they cannot judge, so that no such failure looks like a consent."""
    documents = [document for family in families for document in build_parameter_policy(family)]
    for policy in documents[::2]:
        assert policy["spec"].pop("failurePolicy") == "Ignore"
    return PolicyServer(documents)


SERVER = in_force(FAMILIES.values())


def entry(driver: str, parameters: object) -> Json:
    return {"opaque": {"driver": driver, "parameters": parameters}}


def claim(*config: Json) -> Json:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"config": list(config)}}}


def refusal(document: Json, resource: str = "resourceclaims", old: Json | None = None) -> str:
    """What the policies say about a write; empty: nothing."""
    return SERVER.refusal(resource, new=document, old=old)


def decoder_paths(driver: str, parameters: Json) -> Sequence[str]:
    """The paths of the problems that the plugin would find."""
    try:
        decode_device_config(parameters, "parameters", FAMILIES[driver].configurations)
    except InvalidDocumentError as error:
        return [problem.path for problem in error.problems]
    return []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_policy_says_what_is_wrong_where_the_decoder_refuses(case: ParameterCase) -> None:
    said = refusal(claim(entry(case.driver, case.parameters)))
    assert bool(decoder_paths(case.driver, case.parameters)) == bool(case.problems)
    assert bool(said) == bool(case.problems), said
    for problem in case.problems:
        assert f"spec.devices.config[0].opaque.parameters{problem}" in said
    assert said.count("opaque.parameters") == len(case.problems)


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("resourceclaims", "spec.devices.config"),
        ("resourceclaimtemplates", "spec.spec.devices.config"),
        ("deviceclasses", "spec.config"),
    ],
)
def test_each_kind_has_its_own_path_and_entries_of_other_drivers_are_left_alone(resource: str, path: str) -> None:
    wrong = entry("gpu.kerf.dev", {"kind": "GpuConfig", "apiVersion": "v2"})
    config = [entry("nic.example.com", {"kind": 3}), {}, wrong, entry("nic.example.com", None)]
    document: Json = {"config": config}
    for outer in reversed(path.split(".")[:-1]):
        document = {outer: document}
    assert refusal(document, resource) == f"{path}[2].opaque.parameters.apiVersion: must be kerf.dev/v1alpha1"


def test_a_write_that_leaves_the_spec_as_it_is_passes_so_that_finalizers_can_be_removed() -> None:
    wrong = {"spec": {"config": [entry("gpu.kerf.dev", {"kind": "?"})]}}
    kept = {"metadata": {"finalizers": ["a/b"]}, **wrong}
    assert not refusal(wrong, "deviceclasses", old=kept)
    assert refusal(wrong, "deviceclasses", old={"spec": {}})


def test_a_claim_without_configuration_passes() -> None:
    assert not refusal({"spec": {}})
    assert not refusal({"spec": {"spec": {}}}, "resourceclaimtemplates")
    assert not refusal({"spec": {"selectors": []}}, "deviceclasses")


def test_every_entry_is_judged_and_a_long_message_is_cut() -> None:
    wrong = entry("gpu.kerf.dev", {"kind": "GpuConfig", "apiVersion": VERSION, "x" * 60: 1})
    right = entry("gpu.kerf.dev", {"kind": "GpuConfig", "apiVersion": VERSION})
    assert "config[31]" in refusal(claim(*[right] * 31, wrong))
    said = refusal(claim(*[wrong] * 32))
    assert said.endswith(" ...")
    assert len(said) == 1004


def test_a_family_without_configurations_accepts_none() -> None:
    fields = GPU.class_fields - {"sharing"}
    bare = in_force([replace(GPU, configurations={}, default_configuration="", class_fields=fields)])
    said = bare.refusal("resourceclaims", new=claim(entry("gpu.kerf.dev", {"kind": "GpuConfig"})))
    assert said.endswith(".kind: this family of devices has no configuration")


def test_a_type_that_the_decoder_does_not_know_is_an_error() -> None:
    class TimeConfig(DeviceConfigBase, tag="TimeConfig"):
        """A configuration with a type that no other has."""

        ratio: float = 1.0

    with pytest.raises(UnsupportedTypeError, match="a field of type FloatType"):
        build_parameter_policy(replace(GPU, configurations={**GPU.configurations, "TimeConfig": TimeConfig}))


class Limits(Strict):
    """Limits of one part of a device."""

    most: int = 1


class OddConfig(DeviceConfigBase, tag="text"):
    """A configuration whose kind is the name of a variable, with two fields that differ in a hyphen."""

    hyphen: Limits | None = msgspec.field(default=None, name="per-core")
    underscore: Limits | None = msgspec.field(default=None, name="per_core")


@pytest.mark.parametrize("kind", ["text", "given", "package", "9Config", "OddConfig"])
def test_kinds_and_fields_of_any_spelling_are_judged(kind: str) -> None:
    """Of a kind named ``text``, and of two such fields, one variable of the policy had the name of another."""

    class Other(OddConfig, tag=kind):
        """The same with another kind."""

    family = replace(GPU, configurations={kind: Other}, default_configuration="", class_fields=frozenset())
    server = in_force([family])
    names = [variable["name"] for variable in build_parameter_policy(family)[0]["spec"]["variables"]]
    assert len({*names}) == len(names)
    for field in ("per-core", "per_core"):
        wrong = {"kind": kind, "apiVersion": VERSION, field: {"most": "much"}}
        said = server.refusal("resourceclaims", new=claim(entry("gpu.kerf.dev", wrong)))
        assert said == f"spec.devices.config[0].opaque.parameters.{field}.most: must be a whole number"
        right = {**wrong, field: {"most": 2}}
        assert not server.refusal("resourceclaims", new=claim(entry("gpu.kerf.dev", right)))


def agree(driver: str, parameters: Json) -> None:
    said, paths = refusal(claim(entry(driver, parameters))), decoder_paths(driver, parameters)
    assert bool(said) == bool(paths), (said, paths)


@pytest.mark.parametrize(
    ("driver", "type_"), [("gpu.kerf.dev", GpuConfig), ("acme.example.com", AcmeConfig)], ids=["gpu", "acme"]
)
def test_policy_and_decoder_agree_on_generated_parameters(driver: str, type_: type) -> None:
    @given(documents(type_))
    def check_any(parameters: Json) -> None:
        agree(driver, parameters)

    @given(damaged_documents(documents(type_)))
    def check_damaged(parameters: Json) -> None:
        agree(driver, parameters)

    check_any()
    check_damaged()


@given(damaged_documents(documents(FPGA.configurations["FpgaConfig"])))
def test_policy_and_decoder_agree_on_damaged_fpga_configurations(parameters: Json) -> None:
    agree("fpga.kerf.dev", parameters)
