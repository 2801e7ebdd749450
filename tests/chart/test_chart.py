"""The chart without Helm: its values, its schema and what is generated into it. ``tools/helm`` renders it."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families
from tests.kube.certificates import HERE
from tools.generate import chart
from tools.generate.chart_values import ChartValue, list_values
from tools.helm.chart import CHART, MANIFESTS, PROFILES, ROOT, profile
from tools.image import description

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
NAMES = sorted(path.stem for path in PROFILES.glob("*.yaml"))


def is_valid(values: dict[str, Any]) -> bool:
    return jsonschema.Draft7Validator(SCHEMA).is_valid(values)


def with_profile(name: str, change: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    values = {**copy.deepcopy(VALUES), **profile(name)}
    change(values["plugins"][0])
    return values


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_no_node_has_a_plugin_by_default() -> None:
    assert is_valid(VALUES)
    assert VALUES["plugins"] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_profiles_are_valid_and_their_backends_are_of_their_families(name: str) -> None:
    assert is_valid(with_profile(name))
    (found,) = profile(name)["plugins"]
    backends = tuple(BackendChoice(name=backend, config=None) for backend in found["backends"])
    assert sorted(one.family.name for one in choose_families((), backends)) == sorted(found["families"])


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["plugins"][0].update(nodeSelectors={"a": "b"}),
        lambda values: values["plugins"][0].update(privileged=False),
        lambda values: values["plugins"][0].pop("privileged"),
        lambda values: values["plugins"][0].pop("backends"),
        lambda values: values["plugins"][0].update(backends={}),
        lambda values: values["plugins"][0].update(families=[]),
        lambda values: values["plugins"][0].update(families=["asic"]),
        lambda values: values["plugins"][0].update(name="No Name"),
        lambda values: values["plugins"][0].update(name="a" * 31),
        lambda values: values["plugins"][0].update(backends={"simulated": {}}, driverRoot="/"),
        lambda values: values["plugins"][0].update(backends={"simulated": {}}, sharing=True),
        lambda values: values["plugins"][0].update(excludeCards={"nvidia": [0]}),
        lambda values: values["plugins"][0].update(excludeCards={"nvidia": ["0"]}),
        lambda values: values["plugins"][0].update(excludeCards={"nvidia": ["0000:3b:00"]}),
        lambda values: values["plugins"][0].update(excludeCards=["GPU-8f3c"]),
        lambda values: values["plugins"][0].update(includeCards={"nvidia": "GPU-8f3c"}),
        lambda values: values.update(pluginz=[]),
        lambda values: values["image"].update(digest="latest"),
        lambda values: values["controller"].update(replicas=0),
        lambda values: values.update(kubeletRoot="var/lib/kubelet"),
        lambda values: values["apiServer"].update(address="http://10.0.0.1"),
        lambda values: values["apiServer"].update(certificateAuthority="/etc/ssl/ca.crt"),
        lambda values: values.update(certificateAuthorities="/etc/ssl/ca.crt"),
        lambda values: values["proxy"].update(httpsProxy="socks5://proxy.example"),
        lambda values: values["proxy"].update(httpsProxy="http://user:password@proxy.example"),
        lambda values: values["proxy"].update(httpsProxy="proxy.example:3128"),
        lambda values: values["proxy"].update(httpProxy="http://proxy.example:3128"),
        lambda values: values["proxy"].update(noProxy="10.0.0.0/8,.lab"),
        lambda values: values["proxy"].update(noProxy=["10.0.0.0/8,.lab"]),
        lambda values: values["networkPolicy"].update(apiServerPorts=[]),
        lambda values: values["mpsDaemons"].update(enabled="yes"),
    ],
)
def test_the_schema_refuses(change: Callable[[dict[str, Any]], None]) -> None:
    values = with_profile("nvidia")
    change(values)
    assert not is_valid(values)


def test_a_proxy_and_certificate_authorities_are_values() -> None:
    values = {
        **VALUES,
        "certificateAuthorities": (HERE / "ca-1.pem").read_text(),
        "proxy": {"httpsProxy": "http://proxy.example:3128", "noProxy": ["10.0.0.0/8", ".lab", "fd00::/8", "*"]},
    }
    assert is_valid(values)


def test_a_vendors_family_is_named_by_its_driver() -> None:
    assert is_valid(with_profile("simulated", lambda one: one.update(families=["npu.acme.example"])))


def test_the_schema_knows_every_value_and_no_other() -> None:
    def names(value: dict[str, Any], schema: dict[str, Any]) -> None:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        if "properties" not in schema:
            return
        assert value.keys() == schema["properties"].keys() - {"global"}
        for name, member in value.items():
            if isinstance(member, dict):
                names(member, schema["properties"][name])

    names(VALUES, SCHEMA)


@pytest.mark.parametrize("value", list_values(SCHEMA), ids=lambda value: value.path)
def test_a_value_is_described_and_the_page_that_says_more_is_there(value: ChartValue) -> None:
    assert value.description.endswith("."), "say in values.schema.json what it does"
    assert not value.page or (ROOT / value.page.partition("#")[0]).is_file()


def test_the_page_of_the_chart_has_each_profile() -> None:
    rows = re.findall(r"^\| `(\w+)\.yaml` \|", (CHART / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == NAMES


def test_the_chart_is_of_this_version_and_has_this_image() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    image = VALUES["image"]["repository"]
    assert f"{image}:{about['appVersion']}" == description.NAME
    assert f'version = "{about["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()
    assert VALUES["drivers"] == [str(family.driver) for family in BUILT_IN]


def test_generated_templates_are_up_to_date(tmp_path: Path) -> None:
    for path in chart.generate(tmp_path):
        assert (ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"
    assert {path.name for path in (CHART / "templates/crds").iterdir()} == {
        path.name for path in (ROOT / "deploy/crds").glob("*.yaml")
    }


def test_every_manifest_is_of_the_chart() -> None:
    folders = (
        "manifests",
        "nvidia",
        "fpga",
        "intel",
        "discovered",
        "early-loading",
        "classic",
        "crds",
        "graded-placement",
        "reclaim",
        "do-not-evict",
    )
    found = {f"{folder}/{path.name}" for folder in folders for path in (ROOT / "deploy" / folder).glob("*.yaml")}
    assert found == {*MANIFESTS}


@pytest.mark.parametrize("manifest", [name for name in MANIFESTS if name.endswith("kubelet-plugin.yaml")])
def test_a_plugin_whose_root_is_read_only_has_a_folder_for_copies_of_its_checkpoint(manifest: str) -> None:
    """``kerf check node`` as an init container failed on each restart of its pod: there was no folder for the copy."""
    documents = yaml.safe_load_all((ROOT / "deploy" / manifest).read_text())
    [pod] = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "DaemonSet"]
    [container] = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    [folder] = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/tmp"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == folder]
    assert "emptyDir" in volume
