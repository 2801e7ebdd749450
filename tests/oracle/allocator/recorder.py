"""``python -m tests.oracle.allocator.recorder FILE``: records the oracle's answers to named cases, for tests without
Go.

The cases are those that the allocator once got wrong or did not decide, a few generated ones of each kind, and hard
ones of every family that are still small enough for the judge.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.wire import to_builtins
from tests.allocation.builders import NODE, class_
from tests.allocation.hard_cases.families import FAMILIES
from tests.allocation.hard_cases.linked import LINKED
from tests.conformance.allocator import FLAGS, SHARE
from tests.oracle.allocator import MODULE
from tests.oracle.allocator.clusters import generate_case, generate_case_with_invalid_amounts
from tests.oracle.judge import Judge, build

STORIES: Final[dict[int, str]] = {
    5640: "no decision within the step budget: the second claim alone cannot be served, which the first one hid",
}
"""Seeds of cases with a reason."""
_GENERATED: Final = 30
_SPOILED: Final = 10
_LIMIT_S: Final = 20.0


def cases() -> Iterator[JsonObject]:
    for seed, reason in STORIES.items():
        yield {**generate_case(seed), "why": reason}
    yield from map(generate_case, range(_GENERATED))
    yield from ({**generate_case_with_invalid_amounts(seed), "name": f"spoiled-{seed}"} for seed in range(_SPOILED))
    for name, build_case in {**FAMILIES, **LINKED}.items():
        hard = build_case(4)
        claims = [to_builtins(claim) for claim in hard.claims]
        for request in (each for claim in claims for each in claim["spec"]["devices"]["requests"]):
            for ask in (request.get("exactly"), *request.get("firstAvailable", ())):
                if ask is not None:
                    ask.setdefault("allocationMode", "ExactCount")  # the API server's default
        yield {
            "name": name,
            "features": dict.fromkeys(FLAGS, True),
            "classes": [to_builtins(class_())],
            "slices": [to_builtins(each) for each in hard.slices],
            "node": {"metadata": {"name": NODE.name, "labels": NODE.labels}},
            "claims": claims,
            "allocated": {"devices": [], "sharedDevices": [], "consumedCapacity": []},
        }


def main(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        binary = build(MODULE, Path(folder) / "oracle")
        with Judge(binary, ["-implementation", "experimental"]) as judge, path.open("w", encoding="utf-8") as file:
            for each in cases():
                answer = judge.ask({**each, "op": "allocate", "limit": _LIMIT_S})
                if answer["errorKind"] in ("timeout", "panic"):
                    continue
                for result in (one for given in answer["results"] or () for one in given["devices"]["results"]):
                    if "shareID" in result:
                        result["shareID"] = SHARE
                expect = {key: answer[key] for key in ("results", "error", "errorKind")}
                file.write(json.dumps({**each, "expect": expect}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
