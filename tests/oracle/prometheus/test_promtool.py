"""Prometheus accepts the alerts and the dashboard's expressions, and alerts fire when they should."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.alerts.test_alerts_and_dashboard import RULE_TESTS, RULES, panels
from tests.oracle.prometheus import promtool
from tools.realcluster.builds import cache

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return promtool.find_promtool(tmp_path_factory.mktemp("promtool"), cache().with_name("prometheus"))


def judge(program: Path, *words: str) -> None:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_every_expression_of_the_dashboard(program: Path, tmp_path: Path) -> None:
    found = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    records = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(found)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    judge(program, "check", "rules", str(file))


@pytest.mark.parametrize("words", [("check", "rules", str(RULES)), ("test", "rules", str(RULE_TESTS))], ids=" ".join)
def test_prometheus_accepts_the_rules_and_they_fire_when_they_should(program: Path, words: tuple[str, ...]) -> None:
    judge(program, *words)


def test_without_promtool_and_packages_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(promtool.NoPromtoolError, match="install the package prometheus"):
        promtool.find_promtool(tmp_path, tmp_path / "cache")
