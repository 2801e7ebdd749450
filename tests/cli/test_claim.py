"""``kerf claim``: templates and claims by the words of a family."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.resource.registry import VERSIONS, load_kinds
from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.catalog import claim
from kerf_dra.driver.families.base import AttributeDefinition, Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.registry import BUILT_IN

Run = Callable[..., tuple[int, str, str]]
MEMORY_18 = 'device.capacity["gpu.kerf.dev"].memory.compareTo(quantity("18Gi")) >= 0'

ODD = Family(
    name="odd",
    driver=DriverName("odd.example.com"),
    attributes={
        name: AttributeDefinition(description=f"The {name}.", neutral=neutral)
        for name, neutral in {
            "cut": Attribute.of(""),
            "model": Attribute.of(""),
            "uuid": Attribute.of(""),
            "node": Attribute.of(""),
            "count": Attribute.of(""),
            "eccEnabled": Attribute.of(False),
            "firmware": Attribute(version="0.0.0"),
            "loadSeconds": Attribute.of(0),
        }.items()
    },
    capacities={"HBMBandwidth": "Bytes a second."},
)
"""A family without known models, one of whose words is an option of every family."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["claim", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def devices(document: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = document["spec"] if document["kind"] == "ResourceClaim" else document["spec"]["spec"]
    found: Mapping[str, Any] = spec["devices"]
    return found


def expressions(document: Mapping[str, Any]) -> list[str]:
    (request,) = devices(document)["requests"]
    return [selector["cel"]["expression"] for selector in request["exactly"].get("selectors", ())]


def test_a_template_for_a_size_names_the_familys_own_class(run: Run) -> None:
    code, out, _ = run("gpu", "--memory", "18Gi", "--count", "2", "--same-card")
    assert code == 0
    assert yaml.safe_load(out) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu-memory-18gi-x2"},
        "spec": {
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "gpu",
                            "exactly": {
                                "deviceClassName": "gpu.kerf.dev",
                                "selectors": [{"cel": {"expression": MEMORY_18}}],
                                "count": 2,
                            },
                        }
                    ],
                    "constraints": [{"matchAttribute": "gpu.kerf.dev/uuid"}],
                }
            }
        },
    }


def test_a_comment_says_how_a_pod_uses_it_and_fits_a_terminal(run: Run) -> None:
    for arguments in (["gpu", "--memory", "18Gi"], ["fpga", "--slots", "2", "--count", "2", "--same-card"]):
        _, out, _ = run(*arguments)
        name = yaml.safe_load(out)["metadata"]["name"]
        comment = [line.removeprefix("# ") for line in out.splitlines() if line.startswith("# ")]
        start = comment.index("In the pod:")
        pod = yaml.safe_load("\n".join(comment[start + 1 :]))
        assert pod["resourceClaims"] == [{"name": arguments[0], "resourceClaimTemplateName": name}]
        assert pod["containers"][0]["resources"]["claims"] == [{"name": arguments[0]}]
        assert max(map(len, comment)) < 80


def test_json_is_the_same_document_without_a_comment(run: Run) -> None:
    arguments = ["gpu", "--profile", "1g.10gb", "--kind", "claim", "--name", "mine"]
    _, as_json, _ = run(*arguments, "-o", "json")
    _, as_yaml, _ = run(*arguments)
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
    assert json.loads(as_json)["metadata"] == {"name": "mine"}


def test_a_profile_is_asked_for_by_all_its_names(run: Run) -> None:
    path = 'device.attributes["gpu.kerf.dev"].profile'
    for name, other in (("1g.35gb", "1g.31gb"), ("1g.31gb", "1g.35gb")):
        code, out, _ = run("gpu", "--profile", name)
        assert (code, expressions(yaml.safe_load(out))) == (0, [f'{path} in ["{name}", "{other}"]'])
    assert expressions(yaml.safe_load(run("gpu", "--profile", "1g.10gb")[1])) == [f'{path} == "1g.10gb"']


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["template", "claim"])
def test_every_version_is_read_back_as_the_same_claim(run: Run, version: str, kind: str) -> None:
    arguments = ["gpu", "--memory", "18Gi", "--count", "3", "--kind", kind, "-o", "json"]
    _, out, _ = run(*arguments, "--api-version", version)
    kinds, newest = load_kinds(version), load_kinds(VERSIONS[0])
    if kind == "claim":
        assert (
            kinds.resource_claims.decode(out.encode()).spec
            == newest.resource_claims.decode(run(*arguments)[1].encode()).spec
        )
    else:
        assert (
            kinds.resource_claim_templates.decode(out.encode()).spec
            == newest.resource_claim_templates.decode(run(*arguments)[1].encode()).spec
        )


def test_of_another_class_only_devices_of_the_family_are_evaluated(run: Run) -> None:
    """The class may have devices of other drivers, on which the other conditions are errors."""
    _, out, _ = run("gpu", "--memory", "18Gi", "--class", "mixed")
    assert expressions(yaml.safe_load(out)) == ['device.driver == "gpu.kerf.dev"', MEMORY_18]


def test_slots_without_a_function_are_asked_for_unless_a_class_decides(run: Run) -> None:
    function = 'device.attributes["fpga.kerf.dev"].function'
    slots = 'device.capacity["fpga.kerf.dev"].slots.compareTo(quantity("2")) >= 0'
    assert expressions(yaml.safe_load(run("fpga", "--slots", "2")[1])) == [slots, f'{function} == ""']
    assert expressions(yaml.safe_load(run("fpga", "--function", "zstd")[1])) == [f'{function} == "zstd"']
    of_class = expressions(yaml.safe_load(run("fpga", "--slots", "2", "--class", "fpga-zstd")[1]))
    assert of_class == ['device.driver == "fpga.kerf.dev"', slots]


REFUSED = [
    (["gpu", "--memory", "500Gi"], "--memory: 500Gi is more than any known device has; the largest is 277.547Gi"),
    (
        ["gpu", "--memory", "90Gi", "--model", "h100-80gb"],
        "90Gi is more than any known device with model h100-80gb-sxm has; the largest is 79.6475Gi (the whole card of",
    ),
    (
        ["gpu", "--profile", "7g.250gb", "--model", "gb300"],
        "7g.278gb is 7g.251gb in another release of the driver",
    ),
    (
        ["gpu", "--profile", "1g.10gbb", "--model", "h100-80gb"],
        '--profile: no known device with model h100-80gb-sxm has the profile "1g.10gbb"; did you mean "1g.10gb"',
    ),
    (["gpu", "--model", "h1000"], "--model: there is no GPU model 'h1000': `kerf models` lists what is known"),
    (
        ["gpu", "--architecture", "hoper"],
        '--architecture: no known device has the architecture "hoper"; did you mean',
    ),
    (["gpu", "--memry", "1"], "No such option '--memry'. (Did you mean one of: '--memory'"),
    (["gpu", "--memory", "much"], "'much' is not a quantity"),
    (["gpu", "--memory", "18"], "--memory: 18 counts bytes: write a unit, such as 18Gi"),
    (["gpu", "--memory", "10m"], "--memory: 10m counts bytes: write a unit, such as 1Gi"),
    (["gpu", "--product-name", "a\nb: c"], "it has at most 64 bytes of characters that show"),
    (["gpu", "--product-name", "x" * 65], "it has at most 64 bytes of characters that show"),
    (["gpu", "--memory", "0"], "0 is not above zero"),
    (["gpu", "--driver-version", "new"], "'new' is not a version such as 9.0"),
    (["gpu", "--name", "Mine"], "'Mine' is not a name of an object"),
    (["gpu", "--count", "33"], "33 is not in the range 1<=x<=32"),
    (["gpu", "--cut", "monitor"], "'monitor' is not one of 'partition', 'whole'"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_what_cannot_be_is_refused_with_what_can(run: Run, arguments: list[str], said: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())


def test_amounts_that_no_device_has_together_are_refused(run: Run) -> None:
    code, _, err = run("gpu", "--model", "h100-80gb", "--profile", "1g.10gb+me", "--compute-slices", "2")
    assert code == 2
    assert "--compute-slices: 2 is more than any known device" in err
    code, _, err = run("gpu", "--memory", "270Gi", "--multiprocessors", "180")
    assert (code, err) == (
        2,
        "kerf claim gpu: --memory, --multiprocessors: this is more than any known device has together\n",
    )


def test_an_unknown_family_is_an_error_with_a_suggestion(run: Run) -> None:
    said = "kerf: there is no family 'gpus'; installed are: fpga, gpu, gpu-intel, shared; did you mean 'gpu'?\n"
    assert run("gpus") == (1, "", said)


@pytest.mark.parametrize("family", BUILT_IN, ids=lambda family: family.name)
def test_every_capacity_is_an_option_that_names_its_environment_variable(run: Run, family: Family) -> None:
    code, out, _ = run(family.name, "--help")
    assert code == 0
    options = [line for line in out.splitlines() if line.strip().startswith("-") and "--help" not in line]
    assert " ".join(out.split()).count("env var:") == len(options) > len(family.capacities)


@pytest.mark.parametrize("name", ["123", "on", "1e3", "gpu"])
def test_the_lines_for_the_pod_have_the_name_as_text(run: Run, name: str) -> None:
    """Of an object named 123 the comment had a number, which the API server refuses as the name of a template."""
    _, out, _ = run("gpu", "--memory", "18Gi", "--name", name)
    (entry,) = [line for line in out.splitlines() if "resourceClaimTemplateName" in line]
    assert yaml.safe_load(entry.removeprefix("# ")) == [{"name": "gpu", "resourceClaimTemplateName": name}]


def test_words_that_are_spelled_alike_have_options_of_their_own(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Of three such words two had one option, and ``--no-mps`` was two options where a family had a word noMps, too."""
    words = ("ecc_enabled", "EccEnabled", "noEccEnabled", "oddEccEnabled")
    alike = {name: AttributeDefinition(description=f"The {name}.", neutral=Attribute.of(False)) for name in words}
    counts = []
    for attributes in (ODD.attributes, {**ODD.attributes, **alike}):
        family = replace(ODD, attributes=attributes)
        monkeypatch.setattr(claim, "installed_families", lambda family=family: {family.name: family})
        code, out, err = run("odd", "--help")
        assert (code, err) == (0, "")
        options = re.findall(r"--[a-z-]+(?= )", out)
        assert len({*options}) == len(options)
        counts.append(out.count("[env var:"))
    assert counts[1] - counts[0] == len(alike)


def test_a_family_of_a_third_party_brings_its_own_words(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(claim, "installed_families", lambda: {family.name: family for family in (GPU, FPGA, ODD)})
    code, out, err = run(
        *("odd", "--hbmbandwidth", "1Ti", "--odd-count", "many", "--ecc-enabled", "--firmware", "1.2", "--model", "x")
    )
    assert (code, err) == (0, "")
    found = expressions(yaml.safe_load(out))
    assert found == [
        'device.capacity["odd.example.com"].HBMBandwidth.compareTo(quantity("1Ti")) >= 0',
        'device.attributes["odd.example.com"].model == "x"',
        'device.attributes["odd.example.com"].count == "many"',
        'device.attributes["odd.example.com"].eccEnabled == true',
        'device.attributes["odd.example.com"].firmware.compareTo(semver("1.2.0")) >= 0',
    ]
    for expression in found:
        compile_selector(expression)
    assert devices(yaml.safe_load(out))["requests"][0]["exactly"]["deviceClassName"] == "odd.example.com"


def test_a_request_just_above_a_size_is_noted_beside_the_template(run: Run) -> None:
    """10Gi, 20Gi and 40Gi each took twice the partition whose name has the number, without a word."""
    code, out, err = run("gpu", "--memory", "20Gi")
    assert code == 0
    assert yaml.safe_load(out)["kind"] == "ResourceClaimTemplate", "notes are not part of the document"
    assert err.splitlines() == [
        (
            "note: 20Gi is 0.5 GiB more than a 1g.20gb of a100-80gb has: it takes a 3g.40gb. 19Gi or 20G take the "
            "1g.20gb; so it is with h100-80gb-sxm, h100-80gb-pcie"
        ),
        (
            "note: 20Gi is 0.5 GiB more than a 3g.20gb of a100-40gb has: it takes a 7g.40gb. 19Gi or 20G take the "
            "3g.20gb"
        ),
    ]
    _, _, of_model = run("gpu", "--memory", "20Gi", "--model", "h100-80gb-sxm")
    assert of_model == (
        "note: 20Gi is 0.4 GiB more than a 1g.20gb of h100-80gb-sxm has: it takes a 3g.40gb. 19Gi or 20G take the "
        "1g.20gb\n"
    )
    assert run("gpu", "--memory", "19Gi", "--model", "h100-80gb-sxm")[2] == ""
    assert "no device has as much. 79Gi or 80G take the 7g.80gb" in run("gpu", "--memory", "80Gi")[2]


@pytest.mark.parametrize(("kind", "field"), [("template", "resourceClaimTemplateName"), ("claim", "resourceClaimName")])
def test_a_pod_is_printed_whose_container_has_the_devices(run: Run, kind: str, field: str) -> None:
    """Four names must agree, by hand."""
    arguments = ("gpu", "--profile", "1g.10gb", "--kind", kind, "--pod", "registry.example/app:1")
    _, out, _ = run(*arguments)
    object_, pod = yaml.safe_load_all(out)
    assert pod["kind"] == "Pod"
    [entry] = pod["spec"]["resourceClaims"]
    assert entry == {"name": "gpu", field: object_["metadata"]["name"]}
    [container] = pod["spec"]["containers"]
    assert container["image"] == "registry.example/app:1"
    assert container["resources"]["claims"] == [{"name": entry["name"]}]
    _, printed, _ = run(*arguments, "-o", "json")
    whole = json.loads(printed)
    assert (whole["apiVersion"], whole["kind"], whole["items"]) == ("v1", "List", [object_, pod])


def test_devices_may_be_asked_for_on_different_cards(run: Run) -> None:
    _, out, _ = run("gpu", "--profile", "1g.10gb", "--count", "2", "--distinct-cards")
    assert devices(yaml.safe_load(out))["constraints"] == [{"distinctAttribute": "gpu.kerf.dev/uuid"}]
    assert "2 of the smallest free devices of gpu.kerf.dev on different cards" in out
    assert "constraints" not in devices(yaml.safe_load(run("gpu", "--distinct-cards")[1])), "one device is on one card"
    code, _, err = run("gpu", "--count", "2", "--same-card", "--distinct-cards")
    assert code == 2
    assert "--same-card and --distinct-cards exclude each other" in err


def test_several_partitions_come_with_a_note_about_cuda(run: Run) -> None:
    said = "a process that uses CUDA sees one MIG device"
    assert said in run("gpu", "--profile", "1g.10gb", "--count", "2")[2]
    for arguments in (
        ["gpu", "--profile", "1g.10gb"],
        ["gpu", "--cut", "whole", "--count", "2"],
        ["fpga", "--count", "2"],
    ):
        assert said not in run(*arguments)[2]
