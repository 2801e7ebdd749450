"""``docs/classic.md`` is true: every rule is shown where it says, and what it draws and names is there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from api.dra import v1alpha2, v1alpha3, v1alpha4
from api.dra.service import DraService

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
def test_every_rpc_is_in_the_page(service: DraService) -> None:
    #
    for method in (service.prepare, service.unprepare):
        assert method.path.rpartition("/")[2] in PAGE


def test_every_path_that_the_page_names_is_there() -> None:
    for path in re.findall(r"`((?:deploy|docs|driver|tests)/[\w./-]+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_the_plugins_pod_has_no_privileges_but_the_folders_that_it_needs() -> None:
    #
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "manifests" / "20-kubelet-plugin.yaml").read_text()))
    (plugin,) = (document for document in documents if document["kind"] == "DaemonSet")
    spec = plugin["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    security = container["securityContext"]
    assert not security.get("privileged")
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not any(spec.get(namespace) for namespace in ("hostNetwork", "hostPID", "hostIPC"))
    assert {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume} <= {
        "/var/lib/kubelet/plugins",
        "/var/lib/kubelet/plugins_registry",
        "/var/run/cdi",
        "/var/lib/kerf",
    }
