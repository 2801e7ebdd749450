"""Arbitrary objects of each built-in kind: Kubernetes' serializers and Kerf's read each other's protobuf alike."""

import base64
import os
from typing import Any

import pytest

from kerf_dra.driver.local.apiserver.kinds.served_kinds import builtin_types
from kerf_dra.driver.local.apiserver.meta.protobuf import can_encode, decode, encode
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings
from tests.oracle.judge import Judge
from tools.generate import kubernetes_messages

pytestmark = pytest.mark.oracle

CASES = int(os.environ.get("KERF_ORACLE_CASES", "20"))
"""Objects of each kind; ``python -m tests.oracle protobuf --cases N`` sets the number."""
FIRST = int(os.environ.get("KERF_ORACLE_SEED", "0"))
KINDS = [
    (type_.group, version.name, kind)
    for type_ in builtin_types(ApiServerSettings())
    for version in type_.versions
    for kind in (type_.kind, type_.list_kind)
    if can_encode(type_.api_version(version), kind)
]


def ask(judge: Judge, kind: tuple[str, str, str], **fields: Any) -> Any:
    group, version, name = kind
    answer = judge.ask({"group": group, "version": version, "kind": name, **fields})
    assert "error" not in answer, answer
    return answer


def without_nothing(value: Any) -> Any:
    """A document without null, and without empty objects and lists, which Go's JSON has for some absent fields."""
    if isinstance(value, dict):
        kept = {key: without_nothing(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    return [without_nothing(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", KINDS, ids="/".join)
def test_each_reads_what_the_other_wrote(kind: tuple[str, str, str], judge: Judge) -> None:
    for seed in range(FIRST, FIRST + CASES):
        made = ask(judge, kind, seed=seed)
        read = decode(base64.b64decode(made["body"]))
        assert without_nothing(read) == without_nothing(made["object"]), seed
        for document in (made["object"], read):
            body = base64.b64encode(encode(document)).decode()
            assert ask(judge, kind, body=body)["object"] == made["object"], seed


def test_the_messages_are_those_of_the_go_types(tmp_path: Any) -> None:
    [path] = kubernetes_messages.generate(tmp_path)
    assert (tmp_path / path).read_text() == (kubernetes_messages.ROOT / path).read_text(), "run `make generate`"
