"""The sockets, calls and answers that docs/concepts.md has between kubelet and plugin are those of the code."""

import re
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.api.dra import health, v1
from kerf_dra.api.podresources.v1 import LIST
from kerf_dra.api.registration.v1 import GET_INFO, NOTIFY_REGISTRATION_STATUS
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.settings import Settings
from tests.structure.test_messages import strings
from tools.generate.claim_diagrams import LIFE
from tools.generate.metrics import find_metrics
from tools.sources import text

PAGE: Final = text(Path("docs/concepts.md"))
CALLS: Final = (GET_INFO, NOTIFY_REGISTRATION_STATUS, v1.SERVICE.prepare, v1.SERVICE.unprepare, health.V1.watch, LIST)
SETTINGS: Final = Settings(node_name="node-1", family=GPU, backends=())
SOCKETS: Final = (SETTINGS.registration_socket, SETTINGS.dra_socket, SETTINGS.pod_resources_socket)


def section(heading: str) -> str:
    return re.split(r"^##+ ", PAGE.partition(f"## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def picture() -> list[str]:
    """The texts of the picture of the calls on a node."""
    (drawn,) = re.findall(r"\]\((pictures/.*?\.svg)\)", section("Who calls whom on a node"))
    return re.findall(r"<text[^>]*>(.*?)</text>", text(Path("docs", drawn)))


@pytest.mark.parametrize("path", [call.path for call in CALLS])
def test_every_call_between_kubelet_and_plugin_is_in_the_picture(path: str) -> None:
    assert path.removeprefix("/") in picture()


@pytest.mark.parametrize("socket", SOCKETS, ids=lambda socket: socket.name)
def test_every_socket_between_kubelet_and_plugin_is_in_the_picture(socket: Path) -> None:
    assert str(socket.relative_to(SETTINGS.kubelet_root)) in picture()


def test_the_phases_in_the_life_of_a_claim_are_those_of_its_metrics() -> None:
    drawn = re.findall(r'<text class="name" x="2"[^>]*>(.*?)</text>', text(LIFE))
    documented = [metric.documentation for metric in find_metrics("kubeletplugin")]
    phases = " ".join(each for each in documented if "by phase" in each or "in a phase" in each)
    assert drawn[-1] == "free", "no metric counts it"
    assert [phase for phase in drawn[:-1] if phase not in phases] == []
    assert len(drawn) == 7


def test_the_answers_about_unknown_claims_are_those_of_the_plugin() -> None:
    rows = [line for line in section("A claim that the plugin does not know").splitlines() if line.startswith("| prep")]
    answers = [answer for row in rows for answer in re.findall(r"`(claim [^`]+)`", row)]
    assert len(answers) == 4
    assert [answer for answer in answers if answer not in strings()] == []
