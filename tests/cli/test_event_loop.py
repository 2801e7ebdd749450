"""The event loop of commands."""

from kerf_dra.driver.cli import event_loop


class LargeResult:
    """A result whose text costs too much."""

    texts = 0

    def __repr__(self) -> str:
        self.texts += 1
        return "large"


async def read(number: int, result: LargeResult) -> tuple[int, LargeResult]:
    return number, result


def test_a_result_is_returned_and_its_text_is_never_made() -> None:
    """``kerf why`` made the text of all that it had read of a cluster, in most of its time and half of its memory."""
    large = LargeResult()
    assert event_loop.run(read, 1, large) == (1, large)
    assert large.texts == 0
