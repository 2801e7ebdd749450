"""Where ``kerf controller --reclaim`` runs, and with which options."""

from pathlib import Path

import pytest

from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.resource.v1alpha2 import KINDS as CLASSIC_KINDS
from kerf_dra.driver.cli import main
from kerf_dra.driver.controller.reclaim.app import make_reclaim_controller
from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
from kerf_dra.driver.controller.settings import Settings
from kerf_dra.driver.kube.discovery import ClassicFeatures
from tests.kube.memory_server import MemoryServer


def test_where_the_controller_allocates_it_ends_and_says_from_which_release_on_it_works() -> None:
    features = ClassicFeatures(kubernetes=(1, 30), resource=CLASSIC_KINDS)
    with pytest.raises(UnsupportedError, match=r"works from Kubernetes 1\.32 on"):
        make_reclaim_controller(MemoryServer().client(), features, Settings(identity="one"), ReclaimSettings())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--extender-address=:8443", "--extender-certificates=."], "are for different processes"),
        (["--reclaim-cards=-1"], "-1 is not in the range"),
        (["--reclaim-mode=Sometimes"], "is not one of 'Off', 'Report', 'Act'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["controller", "--reclaim", *arguments]) == 2
    assert said in capsys.readouterr().err
