"""``docs/classic.md`` is true: every rule has the test that it names, and everything else that it names exists."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kerf_dra.api.dra import v1alpha2, v1alpha3, v1alpha4
from kerf_dra.api.dra.service import DraService
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families
from kerf_dra.driver.kubeletplugin.settings import Settings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "classic.md").read_text()
ID = re.compile(r"\b(C|S|Q|V|K|R|NE|T)-([A-Z]|\d+)\b")
EXPECTED = {
    *(f"C-{number}" for number in range(20)),
    *(f"S-{number}" for number in range(1, 19)),
    *(f"Q-{number}" for number in range(1, 15)),
    *(f"V-{number}" for number in range(1, 13)),
    *(f"K-{number}" for number in range(1, 15)),
    *(f"R-{number}" for number in range(1, 31)),
    *(f"NE-{number:02}" for number in range(1, 26)),
    *("T-C", "T-N"),
}


class Row(NamedTuple):
    """One row of a table of the page."""

    ids: tuple[str, ...]
    shown_by: str


SIMULATED = [choice.family for choice in choose_families((), [BackendChoice(name="simulated")])]
"""The families that the usual manifest's plugin serves."""


def rows() -> Iterator[Row]:
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and ID.match(cells[0]):
            yield Row(tuple(ids_in(cells[0])), cells[2])


def ids_in(text: str) -> Iterator[str]:
    """``C-1 to C-3`` stands for three."""
    for part in text.split(", "):
        first, *last = ID.findall(part)
        if not last:
            yield "-".join(first)
        else:
            width = len(first[1])
            yield from (f"{first[0]}-{number:0{width}}" for number in range(int(first[1]), int(last[0][1]) + 1))


ROWS = list(rows())


def file_of(name: str) -> Path:
    return ROOT / name if "/" in name else Path(__file__).parent / name


def names(text: str, rule: str) -> bool:
    return re.search(rf"\b{rule}\b", text) is not None or (
        # comments shorten lists of scheduling rules: "S-12, 17"
        rule.startswith("S-") and re.search(rf"\bS-\d+, {rule[2:]}\b", text) is not None
    )


def test_every_rule_has_a_row() -> None:
    assert {rule for row in ROWS for rule in row.ids} >= EXPECTED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.ids[0])
def test_what_the_page_says_shows_a_rule_names_it(row: Row) -> None:
    files = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row.shown_by)
    if not files:
        assert row.shown_by.startswith(("no test: ", "`make "))
        return
    texts = {name: file_of(name).read_text() for name, _ in files}
    for name, test in files:
        assert not test or f"def {test}(" in texts[name], f"{name} has no {test}"
    if not any(test for _, test in files):
        for rule in row.ids:
            assert any(names(text, rule) for text in texts.values()), f"{rule} is named in none of {', '.join(texts)}"


@pytest.mark.parametrize(
    "service", [v1alpha2.SERVICE, v1alpha3.SERVICE, v1alpha4.SERVICE], ids=["v1alpha2", "v1alpha3", "v1alpha4"]
)
def test_every_rpc_is_in_the_diagram(service: DraService) -> None:
    """R-7: the page names the RPCs elsewhere, too, so that a removed diagram went unnoticed."""
    (picture,) = re.findall(r"\]\((pictures/.*?\.svg)\)", PAGE)
    drawn = re.findall(r"<text[^>]*>(.*?)</text>", (ROOT / "docs" / picture).read_text())
    for method in (service.prepare, service.unprepare):
        assert any(method.path.rpartition("/")[2] in text for text in drawn)


def test_every_path_that_the_page_names_is_there() -> None:
    paths = re.findall(r"`((?:deploy|docs|driver|tests)/[\w./-]+)`", PAGE)
    assert "tests/e2e/classic/test_lifecycle.py" in paths
    for path in paths:
        assert (ROOT / path).exists(), path


MANIFEST = ROOT / "deploy" / "manifests" / "20-kubelet-plugin.yaml"
DOCUMENTS = [document for document in yaml.safe_load_all(MANIFEST.read_text()) if document]
(POD,) = (document["spec"]["template"]["spec"] for document in DOCUMENTS if document["kind"] == "DaemonSet")
(CONTAINER,) = POD["containers"]
HOST_FOLDERS = {volume["name"]: volume["hostPath"]["path"] for volume in POD["volumes"] if "hostPath" in volume}


def settings_of_the_pod() -> Settings:
    """What the arguments in the manifest mean; the folders are those that no argument changes."""
    given = dict(argument.removeprefix("--").split("=", 1) for argument in CONTAINER["args"][1:])
    assert given.keys() == {"node-name", "profile", "backend", "probes-address", "instance"}
    name, _, config = given["backend"].partition("=")
    return Settings(
        node_name=given["node-name"],
        family=GPU,
        backends=(BackendChoice(name=name, config=Path(config)),),
        instance=given["instance"],
    )


def mount_of(path: Path) -> dict[str, Any]:
    """The container's mount in which ``path`` lies."""
    (found,) = (mount for mount in CONTAINER["volumeMounts"] if path.is_relative_to(mount["mountPath"]))
    assert isinstance(found, dict)
    return found


def test_the_plugins_pod_gets_every_folder_that_the_plugin_writes_to() -> None:
    # by volumes that the manifest names, each at the path that the kubelet and the runtime are told
    settings = settings_of_the_pod()
    written = {settings.registration_socket, settings.cdi_dir}
    for family in SIMULATED:
        written |= {replace(settings, family=family).dra_socket, replace(settings, family=family).state}
    (backend,) = settings.backends
    assert backend.config is not None
    (hardware,) = (document for document in DOCUMENTS if document["kind"] == "ConfigMap")
    written.add(Path(yaml.safe_load(hardware["data"][backend.config.name])["state"]))
    for path in written:
        mount = mount_of(path)
        assert HOST_FOLDERS[mount["name"]] == mount["mountPath"], path
        assert not mount.get("readOnly"), path


def test_the_plugins_pod_gets_the_description_of_its_hardware() -> None:
    #
    (backend,) = settings_of_the_pod().backends
    assert backend.config is not None
    (volume,) = (one for one in POD["volumes"] if one["name"] == mount_of(backend.config)["name"])
    (hardware,) = (document for document in DOCUMENTS if document["kind"] == "ConfigMap")
    assert volume["configMap"]["name"] == hardware["metadata"]["name"]
    assert backend.config.name in hardware["data"]
    assert backend.config.parent == Path(mount_of(backend.config)["mountPath"])


def test_the_plugins_pod_has_no_privileges_and_no_folders_beyond_those() -> None:
    #
    security = CONTAINER["securityContext"]
    assert not security.get("privileged")
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not any(POD.get(namespace) for namespace in ("hostNetwork", "hostPID", "hostIPC"))
    assert set(HOST_FOLDERS.values()) == {
        *(f"/var/lib/kubelet/plugins/{family.driver}" for family in SIMULATED),
        "/var/lib/kubelet/plugins_registry",
        "/var/lib/kubelet/pod-resources",
        "/var/run/cdi",
        "/var/lib/kerf/simulated",
    }
    (account_of_pods,) = (one for one in CONTAINER["volumeMounts"] if one["name"] == "pod-resources")
    assert account_of_pods["readOnly"]


def test_the_page_says_where_the_needs_of_the_plugins_pod_are_written() -> None:
    #
    (row,) = (row for row in ROWS if "R-15" in row.ids)
    assert f"`{MANIFEST.relative_to(ROOT)}`" in row.shown_by
