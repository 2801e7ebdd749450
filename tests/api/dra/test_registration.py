"""Plugin registration: the messages survive the round trip under the kubelet's names."""

from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.registration.v1 import GET_INFO, NOTIFY_REGISTRATION_STATUS, PluginInfo, RegistrationStatus
from tests.api.dra.strategies import TEXTS
from tests.strategies import TEXT

INFOS = st.builds(PluginInfo, type=TEXT, name=TEXT, endpoint=TEXT, supported_versions=TEXTS)
STATUSES = st.builds(RegistrationStatus, registered=st.booleans(), error=TEXT)


def test_method_paths_are_those_that_the_kubelet_calls() -> None:
    assert GET_INFO.path == "/pluginregistration.Registration/GetInfo"
    assert NOTIFY_REGISTRATION_STATUS.path == "/pluginregistration.Registration/NotifyRegistrationStatus"


@given(info=INFOS, status=STATUSES)
def test_messages_round_trip(info: PluginInfo, status: RegistrationStatus) -> None:
    assert GET_INFO.decode_request(GET_INFO.encode_request(None)) is None
    assert GET_INFO.decode_response(GET_INFO.encode_response(info)) == info
    notify = NOTIFY_REGISTRATION_STATUS
    assert notify.decode_request(notify.encode_request(status)) == status
    assert notify.decode_response(notify.encode_response(None)) is None
