"""Generated cases, answered by both releases of the Go library and by us."""

import base64
import os
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from kerf_dra.cdi import (
    Document,
    InvalidNameError,
    QualifiedName,
    Semantics,
    Spec,
    encode_json,
    encode_yaml,
    minimum_version,
    read,
)
from kerf_dra.cdi.document.rules import READING
from tests.cdi.strategies import OCI_SPECS, SPECS
from tests.conformance.cdi import differences, injected, parsed
from tests.oracle.cdi.documents import generate_document
from tests.oracle.cdi.mutations import generate_mutated_document
from tests.oracle.judge import Judge

pytestmark = pytest.mark.oracle

# Few when pytest alone runs them; ``python -m tests.oracle cdi --cases N`` sets the number.
CASES = settings(
    max_examples=int(os.environ.get("KERF_ORACLE_CASES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SEEDS = st.integers(0, 2**64 - 1)
BYTES = st.binary(max_size=6)


def verdict(oracle: Judge, data: bytes, name: str = "x.json") -> Mapping[str, Any]:
    return oracle.ask({"op": "parse", "name": name, "data": base64.b64encode(data).decode()})


def disagreements(document_: Document, theirs: Mapping[str, Any]) -> list[str]:
    # The library's errors are sentences; only that there is one is compared.
    return list(differences(parsed(document_), {key: value for key, value in theirs.items() if key != "error"}))


def reads_differently(document_: Document) -> bool:
    """Whether we say that the document is read differently from release to release."""
    codes = {finding.code for finding in document_.findings}
    return any(code in READING and not READING[code].refused_by for code in codes)


def assert_judged_alike(oracle: Judge, data: bytes) -> None:
    document_, theirs = read(data), verdict(oracle, data)
    # The library looks a little beyond the end of the first document, and may stumble there; we do not follow it.
    stumbles = not theirs["ok"] and any(finding.code == "ignored-rest" for finding in document_.findings)
    assume(not stumbles)
    assert disagreements(document_, theirs) == []


@given(spec=SPECS)
@CASES
def test_what_we_write_every_release_reads_as_it_was_meant(
    release_1_1_0: Judge, release_1_1_1: Judge, spec: Spec
) -> None:
    for name, data in (("x.json", encode_json(spec)), ("x.yaml", encode_yaml(spec))):
        document_ = read(data)
        assert document_.spec is not None
        assert document_.is_valid
        for oracle in (release_1_1_0, release_1_1_1):
            assert disagreements(document_, verdict(oracle, data, name)) == []


@given(spec=SPECS)
@CASES
def test_no_release_asks_for_a_higher_version_than_we_declare(
    release_1_1_0: Judge, release_1_1_1: Judge, spec: Spec
) -> None:
    ours = tuple(map(int, str(minimum_version(spec)).split(".")))
    for oracle in (release_1_1_0, release_1_1_1):
        theirs = tuple(map(int, verdict(oracle, encode_json(spec))["min_version"].split(".")))
        assert theirs <= ours
        # What they overlook is in devices other than the last (see version_that_readers_enforce).
        assert theirs == ours or len(spec.devices) > 1


@given(seed=SEEDS)
@CASES
def test_documents_are_judged_as_release_1_1_0_judges_them(release_1_1_0: Judge, seed: int) -> None:
    data = generate_document(seed).encode()
    assert disagreements(read(data), verdict(release_1_1_0, data)) == []


@given(seed=SEEDS)
@CASES
def test_documents_without_a_warning_are_read_alike_by_release_1_1_1(release_1_1_1: Judge, seed: int) -> None:
    data = generate_document(seed).encode()
    document_ = read(data, semantics="main")
    assume(document_.is_valid and not reads_differently(document_))
    assert disagreements(document_, verdict(release_1_1_1, data)) == []


@given(spec=SPECS, seed=SEEDS, noise=BYTES)
@CASES
def test_damaged_documents_are_judged_as_release_1_1_0_judges_them(
    release_1_1_0: Judge, spec: Spec, seed: int, noise: bytes
) -> None:
    random = Random(seed)
    data = encode_yaml(spec) if random.random() < 0.5 else encode_json(spec)
    start = random.randrange(len(data))
    assert_judged_alike(release_1_1_0, data[:start] + noise + data[start + random.randrange(4) :])


@given(seed=SEEDS)
@CASES
def test_documents_with_slips_are_judged_as_release_1_1_0_judges_them(release_1_1_0: Judge, seed: int) -> None:
    assert_judged_alike(release_1_1_0, generate_mutated_document(seed))


@given(
    text=st.text("av.-_:/=0é \n", max_size=10) | st.from_regex(r"[a-z.]{2,4}/[a-z]{1,3}=[a-z0-9:]{0,3}", fullmatch=True)
)
@CASES
@example(text="a/bb=c")
@example(text="aa/b=c")
def test_names_are_taken_as_both_releases_take_them(release_1_1_0: Judge, release_1_1_1: Judge, text: str) -> None:
    judges: tuple[tuple[Judge, Semantics], ...] = ((release_1_1_0, "1.1"), (release_1_1_1, "main"))
    for oracle, semantics in judges:
        try:
            name = QualifiedName.parse(text, semantics)
            ours = {"ok": True, "vendor": name.kind.vendor, "class": name.kind.class_name, "device": name.device}
        except InvalidNameError:
            ours = {"ok": False}
        theirs = oracle.ask({"op": "qname", "arg": [text]})
        assert ours == {key: theirs[key] for key in ours}


@given(specs=st.lists(SPECS, min_size=1, max_size=3), oci=OCI_SPECS, data=st.data())
@CASES
def test_injecting_comes_to_the_same_oci_spec(
    release_1_1_0: Judge,
    release_1_1_1: Judge,
    specs: list[Spec],
    oci: dict[str, Any],
    data: st.DataObject,
) -> None:
    dirs: list[dict[str, str]] = [{}, {}]
    for number, spec in enumerate(specs):
        dirs[data.draw(st.integers(0, 1))][f"s{number}.json"] = encode_json(spec).decode()
    every = sorted({f"{spec.kind}={device.name}" for spec in specs for device in spec.devices})
    devices = data.draw(st.lists(st.sampled_from([*every, "acme.io/none=x"] if len(every) > 2 else every), max_size=4))
    judges: tuple[tuple[Judge, Semantics], ...] = ((release_1_1_0, "1.1"), (release_1_1_1, "main"))
    for oracle, semantics in judges:
        record = {"op": "inject", "dirs": dirs, "oci": oci, "devices": devices}
        theirs, ours = oracle.ask(record), injected(record, semantics)
        assert list(differences(ours, {key: value for key, value in theirs.items() if key != "error"})) == []
