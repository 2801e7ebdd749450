"""A server of FPGA images that sends a byte now and then: it is not to keep the images of other servers waiting."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.fpga.images.download import DownloadError
from tests.fakes.image_server import ImageServer, image_server
from tests.kubeletplugin.backends.fpga.images.test_fetched_images import Fetching, fetch, reference

OTHERS = (b"one", b"two", b"three")


@pytest.fixture
def server() -> Iterator[ImageServer]:
    with image_server() as served:
        served.files |= {f"/{content.decode()}": content for content in OTHERS}
        yield served


def test_a_body_that_trickles_gives_way_to_the_images_of_others(server: ImageServer, tmp_path: Path) -> None:
    node = Fetching(tmp_path, step_s=20.0, timeout_s=600.0)
    others = [reference(server.url(f"/{content.decode()}"), content) for content in OTHERS]
    trickling = reference(server.url("/trickle"), b"never")
    node.fetcher.want([trickling, *others])
    node.fetcher.fetch_due()
    assert [node.cache.has(image.sha256) for image in (trickling, *others)] == [False, True, True, True]
    assert "other images wait" in node.fetcher.find_state(trickling).message


def test_a_head_that_trickles_is_given_up_before_the_limit_of_the_file(server: ImageServer) -> None:
    with pytest.raises(DownloadError, match="did not answer within"):
        fetch(server.url("/trickling-head"), timeout_s=600.0, head_s=0.2)
