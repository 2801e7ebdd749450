"""Short CEL expressions that take all time or memory to compile or evaluate; rows of ``kinds.toml``.

531 characters of ``.map(a, a + a)`` once kept ``kerf plan`` busy for 48 seconds, and 9,000 brackets for 80.
"""

from pathlib import Path

import msgspec
import pytest
import yaml

from kerf_dra.driver.cel.compile import ExpressionCompileError, UnsupportedExpressionError, compile_selector
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.dump import encode_dump
from tests.attack.kinds import cases
from tests.fakes.cluster_states import gpu_cluster


class CostlyExpression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expression whose middle is repeated, and why it is refused."""

    begin: str = ""
    text: str = ""
    times: int = 1
    end: str = ""
    says: str = ""


@pytest.mark.parametrize(
    "costly",
    cases("test_costly_expressions.py::test_it_is_refused_with_its_reason_and_never_evaluated", CostlyExpression),
)
def test_it_is_refused_with_its_reason_and_never_evaluated(
    costly: CostlyExpression, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expression = costly.begin + costly.text * costly.times + costly.end
    with pytest.raises((ExpressionCompileError, UnsupportedExpressionError), match=costly.says):
        compile_selector(expression)
    selectors = [{"cel": {"expression": expression}}]
    exactly = {"deviceClassName": "whole", "selectors": selectors}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "costly"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim))
    (tmp_path / "dump.json").write_bytes(encode_dump(gpu_cluster()))
    code = main(["plan", "-f", str(tmp_path / "claim.yaml"), "--from", str(tmp_path / "dump.json")])
    output = "".join(capsys.readouterr())
    assert code in (1, 2), output
    assert costly.says in " ".join(output.split()), output
