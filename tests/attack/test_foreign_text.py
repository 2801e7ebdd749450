"""Text that users and their programs choose, in the logs, answers and terminals of those who run the cluster."""

import io
import itertools
import json
import logging
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from kerf_dra.api.errors import InvalidDocumentError, PermanentError
from kerf_dra.api.kerf.decoder import decode_parameters, decode_resource_class
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.dump import encode_dump
from kerf_dra.driver.kubeletplugin.backends.kernel_files import describe_processes, read_process_name
from kerf_dra.driver.kubeletplugin.grpc.dra_service import NodeClaimService
from kerf_dra.driver.runtime import logs
from tests.fakes import cluster_states as clusters
from tests.fakes.claims import claim, config
from tests.fakes.kubelet import ClaimError
from tests.kubeletplugin.harness import machine

ESCAPES: Final = "\x1b]0;owned\x07\x1b[2J\x08\x7f\x9b31m\u202e\u2066"
"""What retitles and clears a terminal, colors it, and turns the direction of what follows."""
FORGED: Final = f"x\n2026-11-24T00:00:00.000Z ERROR   driver: forged\r{ESCAPES}"


def unprintable(text: str) -> set[str]:
    return {one for one in text if not one.isprintable() and one != "\n"}


def written_dump(folder: Path) -> str:
    """Return a dump in which whatever somebody else than Kerf has named or said ends in escapes."""
    literal = f'{clusters.ATTRIBUTES}.profile == "{ESCAPES}"'
    now = clusters.allocate_claims(clusters.gpu_cluster(), *(clusters.claim(f"held{n}", "1g-10gb") for n in range(7)))
    waiting = {
        "near": clusters.request("r", "1g-10gb", literal),
        "wrong": clusters.request("r", "1g-10gb", f"nosuch.{ESCAPES} == 1"),
        "big": clusters.request("r", "3g-40gb"),
        "unknown": clusters.request("r", "missing"),
    }
    refused = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=f"nobody said{ESCAPES}")
    now = clusters.replace(
        now,
        claims=(*now.claims, *(clusters.claim(name, asked) for name, asked in waiting.items())),
        pods=(*now.pods, *(clusters.pod(f"pod-{name}", name, conditions=[refused]) for name in waiting)),
        unreadable=("somebody",),
        forbidden_lists={"events": "nobody said"},
    )
    text = encode_dump(now, compress=False).decode()
    escaped = json.dumps(ESCAPES)[1:-1]
    for name in ("node-1", "held0", "gpu-0", "memory-slice-0", "missing", "nobody said", "somebody", "h100-80gb-sxm"):
        text = re.sub(rf"{name}(?![\w\\])", lambda found: f"{found[0]}{escaped}", text)
    file = folder / "dump.json"
    file.write_text(text)
    return str(file)


WANTED: Final = f"""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: wanted}}
spec:
  devices:
    requests:
    - name: r
      exactly:
        deviceClassName: 1g-10gb
        selectors: [{{cel: {{expression: {json.dumps(f'device.driver == "{ESCAPES}"')}}}}}]
"""


def commands(folder: Path) -> Iterator[tuple[str, ...]]:
    dump = ("--from", written_dump(folder))
    manifest, cards, wrong = folder / "claim.yaml", folder / "cards.yaml", folder / "wrong.yaml"
    manifest.write_text(WANTED)
    cards.write_text("state: hardware\ncards: [{kind: gpu, model: a30}]\n")
    wrong.write_text(json.dumps({"cards": [{"kind": "gpu", "model": f"x{ESCAPES}", f"field{ESCAPES}": 1}]}))
    node = ("--state-dir", str(folder / "none"), "--node-name", f"node{ESCAPES}")
    for output in ("text", "wide", "json", "yaml"):
        for name in ("near", "wrong", "big", "unknown"):
            yield ("why", f"claim/{name}", *dump, "-o", output)
            yield ("why", f"pod/pod-{name}", *dump, "-o", output)
        yield ("why", "pods", *dump, "-o", output)
        yield ("why", f"pod/none{ESCAPES}", *dump, "-o", output)
        yield ("plan", "-f", str(manifest), *dump, "-o", output)
        yield ("frag", *dump, "-o", output)
        yield ("frag", *dump, "--nodes", f"x{ESCAPES}", "-o", output)
    for output in ("text", "json", "yaml"):
        yield ("devices", f"--backend=simulated={cards}", *node, "-o", output)
        yield ("devices", f"--backend=simulated={wrong}", *node, "-o", output)
        yield (
            *("check", "node", f"--backend=simulated={wrong}", f"--kubelet-root={folder}", f"--cdi-dir={folder}/cdi"),
            *(f"--containerd-config={folder}/config.toml", "-o", output),
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning:click")
def test_no_command_writes_the_control_characters_of_others_to_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A CEL selector may quote any text, and `kerf why` showed it to the administrator: it could clear the screen, and
    say that everything was well.
    """
    seen = 0
    for arguments in commands(tmp_path):
        main(list(arguments))
        out, err = capsys.readouterr()
        assert unprintable(out) | unprintable(err) == set(), arguments
        assert len(out) + len(err) > 40, arguments
        if arguments[-1] in ("json", "yaml") and out:
            document = json.loads(out) if arguments[-1] == "json" else yaml.safe_load(out)
            seen += ESCAPES in str(document) or any(one in json.dumps(document) for one in ("\\u202e", "\\u009b"))
        seen += "\N{REPLACEMENT CHARACTER}" in out + err
    assert seen > 50, "the test shows hardly any foreign text"


def test_a_terminal_gets_colors_from_kerf_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colors are set after what others have written was made printable, and only they are escapes."""
    written = io.StringIO()
    monkeypatch.setattr(written, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", written)
    for arguments in commands(tmp_path):
        main(list(arguments))
    text = written.getvalue()
    colors = re.compile(r"\x1b\[(?:[0-9]|[39][0-9]|1;31|48;5;[0-9]{2,3};38;5;[0-9]{2,3}(?:;4)?)m")
    assert {"\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"} <= {*colors.findall(text)}
    assert unprintable(colors.sub("", text)) == set()
    assert "\x1b[2J" not in text


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure(level="info", format="text", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


async def test_a_field_that_nothing_knows_forges_no_line_of_the_log(log: io.StringIO) -> None:
    """Its name was in the message as the claim has it, and a line break in it began a line of its own."""
    wrong = config({"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", FORGED: 1})
    with machine() as node:
        held = node.cluster.add(claim("a", "gpu-1", configs=[wrong]))
        async with node.plugin():
            with pytest.raises(ClaimError) as raised:
                await node.kubelet.prepare(held)
    assert unprintable(str(raised.value)) == unprintable(log.getvalue()) == set()
    assert not any(line.startswith("2026-11-24T00:00:00.000Z ERROR") for line in log.getvalue().splitlines())
    assert "forged" in log.getvalue()


async def test_a_claim_of_thousands_of_unknown_fields_costs_a_short_line_at_each_try(log: io.StringIO) -> None:
    """It was 5.5 MB of log for each try, and an answer that gRPC did not take: the whole call failed."""
    names = map("".join, itertools.product(string.ascii_letters, repeat=2))
    fields = dict.fromkeys([*itertools.islice(names, 1399), "long" * 2000], 0)
    wrong = config({"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"} | fields)
    with machine() as node:
        held = node.cluster.add(claim("a", "gpu-1", configs=[wrong] * 32))
        async with node.plugin():
            with pytest.raises(ClaimError, match="and 44784 more") as raised:
                await node.kubelet.prepare(held)
    assert len(str(raised.value)) < 4200
    assert len(log.getvalue()) < 4200


class Refusal:
    """A handler of claims that refuses each of them with a long text."""

    async def prepare_when_active(self, claim: ClaimRef) -> PreparedClaim:
        raise PermanentError(f"no {'x' * 100_000}")

    async def unprepare_when_active(self, claim: ClaimRef) -> None:
        raise ValueError("x" * 100_000)


async def test_the_error_of_one_claim_is_cut_whatever_it_is() -> None:
    """The errors of all claims of a call are one answer, which gRPC refuses above 4 MiB."""
    service = NodeClaimService(Refusal(), ())
    held = [ClaimRef(namespace="default", name=f"c{number}", uid=f"u{number}") for number in range(50)]
    prepared, unprepared = await service.serve_prepare(held), await service.serve_unprepare(held)
    errors = [outcome.error for outcome in prepared.values()] + [*unprepared.values()]
    assert len(errors) == 100
    assert {len(error) for error in errors} == {4097}
    assert {error[:10] for error in errors} == {"no xxxxxxx", "internal e"}


def test_names_in_documents_are_told_in_one_short_line() -> None:
    """The classic controller puts these messages into claims, and `kerf why` shows them."""
    long = f"{FORGED}{'y' * 9000}"
    for document in (
        {"apiVersion": long, "kind": long, long: 1},
        {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuClaimParameters", "spec": {long: 1}},
        {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuClaimParameters", "spec": {"profile": long, "models": [long]}},
    ):
        with pytest.raises(InvalidDocumentError) as caught:
            decode_parameters(document, "parameters")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 1000
    with pytest.raises(InvalidDocumentError) as caught:
        decode_resource_class(
            {"apiVersion": long, "kind": long, "metadata": {"name": "a"}, "spec": {"minimum": {long: 1}}}
        )
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_a_process_writes_nothing_to_terminals_by_its_name(tmp_path: Path) -> None:
    """A process in a container names itself (PR_SET_NAME), and messages about cards that are in use have the name."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/comm").write_text("a\n\x1b[2J\x9b1m\u202eb\n")
    told = describe_processes({7: read_process_name(tmp_path, 7)})
    assert told.isprintable()
    assert told.startswith("process 7 (a \N{REPLACEMENT CHARACTER}[2J")
