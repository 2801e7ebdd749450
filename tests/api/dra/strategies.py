"""Hypothesis strategies for prepared claims and what the kubelet sees of them."""

from hypothesis import strategies as st

from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.api.model.prepared import (
    CardPart,
    ClaimState,
    DeviceDescription,
    PreparedClaim,
    PreparedDevice,
    PrepareOutcome,
    ReportedDevice,
)
from tests.strategies import JSON_OBJECTS, QUANTITIES, TEXT

TEXTS = st.lists(TEXT, max_size=3).map(tuple)
CLAIMS = st.builds(ClaimRef, namespace=TEXT, name=TEXT, uid=TEXT)
SHARES = st.builds(ShareId, st.builds(DeviceId, TEXT, TEXT, TEXT), st.none() | TEXT)
ATTRIBUTES = (st.integers(-(2**63), 2**63 - 1) | st.booleans() | TEXT).map(Attribute.of)
NUMBERS = st.none() | st.integers(0, 16)
PARTS = st.builds(
    CardPart,
    kind=TEXT,
    card_uuid=TEXT,
    profile=st.none() | TEXT,
    start=NUMBERS,
    size=NUMBERS,
    function=st.none() | TEXT,
    shared=st.booleans(),
)
PREPARED_DEVICES = st.builds(
    PreparedDevice,
    requests=TEXTS,
    share=SHARES,
    admin_access=st.booleans(),
    consumed_capacity=st.dictionaries(TEXT, QUANTITIES, max_size=2),
    part=PARTS,
    backend=TEXT,
    config=st.none() | JSON_OBJECTS,
    handle=st.none() | JSON_OBJECTS,
    description=st.none() | st.builds(DeviceDescription, request=TEXT, attributes=st.dictionaries(TEXT, ATTRIBUTES)),
    cdi_ids=TEXTS,
)
PREPARED_CLAIMS = st.builds(
    PreparedClaim,
    claim=CLAIMS,
    state=st.sampled_from(ClaimState),
    boot_id=TEXT,
    pod_claim_name=TEXT,
    awaits_pod=st.booleans(),
    devices=st.lists(PREPARED_DEVICES, max_size=3).map(tuple),
)
REPORTED_DEVICES = st.builds(
    ReportedDevice, requests=TEXTS, pool=TEXT, device=TEXT, share=st.none() | TEXT, cdi_ids=TEXTS
)
OUTCOMES = st.builds(PrepareOutcome, devices=st.lists(REPORTED_DEVICES, max_size=3).map(tuple), error=TEXT)
