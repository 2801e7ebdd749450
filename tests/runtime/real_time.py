"""The event loop of tests that wait in real time, and may use gRPC.

gRPC has one poller for all event loops of a process, and the loop that runs gets its events (grpc/grpc#23377): also
those for a loop that was closed before gRPC was done with its last call or server, as a test's may be. Nobody
waits for them, but gRPC raises "Event loop is closed" in the test that happens to run.
"""

import asyncio
from typing import Any, Final


class RealTimeLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        of_grpc = "PollerCompletionQueue._handle_events" in context.get("message", "")
        if not (of_grpc and str(context.get("exception")) == "Event loop is closed"):
            super().call_exception_handler(context)


REAL_TIME: Final[tuple[str, dict[str, object]]] = ("asyncio", {"loop_factory": RealTimeLoop})
"""What the fixture ``anyio_backend`` returns where no other loop is asked for."""
