"""``docs/write-a-discovery-handler.md`` quotes the example that ``test_remote_handlers`` runs, and the limits."""

import re

from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.objects import MAX_FOUND
from kerf_dra.driver.kubeletplugin.discovery_handlers import device_lists, found_devices, remote_handlers
from kerf_dra.driver.kubeletplugin.settings import Settings
from tests.kubeletplugin.discovery_handlers.test_remote_handlers import EXAMPLE, ROOT

PAGE = (ROOT / "docs/write-a-discovery-handler.md").read_text()


def test_the_page_quotes_the_whole_example() -> None:
    [quoted] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert quoted == EXAMPLE.read_text()


def test_the_page_says_the_limits_as_they_are() -> None:
    settings = Settings(node_name="n", family=SHARED, backends=())
    for said in (
        f"keeps its devices for {settings.handler_grace_s:g} s",
        f"gives up after {device_lists.FIRST_LIST_S:g} s",
        f"more than {found_devices.MAX_DEVICES} devices",
        f"a node makes {MAX_FOUND} objects",
        f"at {device_lists.MAX_LISTS} lists a minute",
        f"at most {remote_handlers.MAX_HANDLERS} |",
    ):
        assert said in PAGE, said
    assert (device_lists.QUIET_S, settings.retry.first_s, settings.retry.limit_s) == (60, 0.5, 60)
    assert dict(remote_handlers.CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] == 5 * 60 * 1000
    assert f"`{settings.discovery_dir}`" in PAGE
