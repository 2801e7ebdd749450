"""A generator of small clusters and pods that use every feature of structured DRA, validly and invalidly.

A case is what ``tests.conformance.allocator`` reads, without an expected result. Two kinds alternate: *regular* cases,
in which nearly all devices are usable and most requests fit, so that the search has much to do, and irregular ones.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, TypeVar

from kerf_dra.api.model.base import JsonObject
from tests.conformance.allocator import FLAGS

ElementT = TypeVar("ElementT")

# The selectors that never fail on a device of a regular case come first.
_SELECTORS: Final = (
    "true",
    '"model" in device.attributes["driver-a"] && device.attributes["driver-a"].model == "x"',
    'has(device.attributes["driver-a"].size) && device.attributes["driver-a"].size >= 2',
    '"mem" in device.capacity["driver-a"] && device.capacity["driver-a"].mem.isGreaterThan(quantity("1"))',
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    'cel.bind(a, device.attributes["driver-a"], has(a.model) && a.model != "y")',
    'device.driver in ["driver-a", "driver-b"]',
    'device.attributes["driver-a"].?model.orValue("x") == "x"',
    'device.driver == "driver-a"',
    'device.attributes["driver-a"].model == "x"',
    'device.attributes["driver-a"].size > 1',
    'device.capacity["driver-a"].mem.compareTo(quantity("2")) >= 0',
    'device.attributes["driver-b"].ver.isGreaterThan(semver("1.0.0"))',
    'device.attributes["dom.com"].numa == 0',
    'device.attributes["driver-a"].flag',
    'device.attributes["driver-a"].model.startsWith("x") || device.driver == "driver-b"',
    'device.attributes["driver-b"].ver == "1.0.0"',
    'device.attributes["driver-a"].tags.includes("p")',
)
_REGULAR_SELECTORS: Final = _SELECTORS[:9]
_COMPARED: Final = (
    *("driver-a/root", "dom.com/numa", "driver-a/model", "driver-b/ver"),
    *("driver-a/tags", "dom.com/roots", "shared", "driver-a/flag"),
)
_DERIVED: Final = (
    'device.attributes["driver-a"].model',
    'device.attributes["driver-a"].size',
    '"const"',
    'has(device.attributes["driver-a"].model) ? device.attributes["driver-a"].model : "x"',
    'device.attributes["dom.com"].numa',
)
_AMOUNTS: Final = ("1", "2", "3", "4", "5", "500m", "1500m", "250m", "2.5", "1Ki", "10")
_HUGE: Final = ("0", "9223372036854775807", "9223372036854775808", "1e18", "100E", "1n", "0.1m", "1Ei", "3e3")
_INVALID: Final = (*_HUGE, "-1", "-500m", "-9223372036854775808")
_SMALL: Final = ("1n", "0.1m", "1e18", "3e3", "9223372036854775807")
_TERMS: Final[tuple[JsonObject, ...]] = (
    {"matchExpressions": [{"key": "region", "operator": "In", "values": ["r1", "r2"]}]},
    {"matchExpressions": [{"key": "region", "operator": "In", "values": ["r9"]}]},
    {"matchExpressions": [{"key": "region", "operator": "NotIn", "values": ["r1"]}]},
    {"matchExpressions": [{"key": "num", "operator": "Gt", "values": ["3"]}]},
    {"matchExpressions": [{"key": "num", "operator": "Lt", "values": ["3"]}]},
    {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]},
)


def generate_case(seed: int) -> JsonObject:
    """Return the case of ``seed``; even seeds give regular cases."""
    return _CaseGenerator(seed).generate()


def generate_case_with_invalid_amounts(seed: int) -> JsonObject:
    """Return a case with amounts that nobody should publish or request.

    Amounts that Kerf rejects on purpose are left out: negative counters, and ranges beyond 64 bits or below zero.
    """
    random = Random(seed)
    whole = generate_case(seed)
    amounts = [*_amounts(whole["slices"]), *_amounts([claim["spec"] for claim in whole["claims"]])]
    for _ in range(random.randint(1, 3) if amounts else 0):
        holder, key = random.choice(amounts)
        holder[key] = random.choice(_HUGE if key == "value" else _SMALL if key in ("min", "step") else _INVALID)
    return whole


def _amounts(tree: Any) -> Iterator[tuple[Any, str | int]]:
    """Yield every amount in a JSON tree, as the container that holds it and the key or index there."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if key in ("value", "min", "max", "step", "default"):
            yield tree, key
        elif key == "requests" and isinstance(value, dict):
            yield from ((value, name) for name in value)
        elif key != "taints":
            yield from _amounts(value)
    for value in tree if isinstance(tree, list) else ():
        yield from _amounts(value)


class _CaseGenerator:
    """Generates one case from the random numbers of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._is_regular = seed % 2 == 0
        self._features = {flag: self._is_regular or self._chance(0.85) for flag in FLAGS}
        for flag in ("ListTypeAttributes", "FractionalCapacityRange"):
            self._features[flag] = self._chance(0.5)
        if not self._is_regular and self._chance(0.5):
            self._features["DerivedAttributes"] = self._features["CompatibilityGroups"] = True
        self._devices: list[tuple[str, str, JsonObject]] = []

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _chance_in_irregular(self, probability: float) -> bool:
        return not self._is_regular and self._chance(probability)

    def _choose(self, *of: ElementT) -> ElementT:
        return self._random.choice(of)

    def _sample(self, of: Sequence[ElementT], most: int) -> list[ElementT]:
        return self._random.sample(of, self._random.randint(1, min(most, len(of))))

    def generate(self) -> JsonObject:
        slices = [each for driver in self._drivers() for each in self._pools(driver)]
        self._random.shuffle(slices)
        labels = {"region": self._choose("r1", "r2", "r3"), "num": self._choose("2", "5", "abc")}
        node: JsonObject = {"metadata": {"name": "node-1", "labels": labels}}
        if self._chance(0.5):
            node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
        return {
            "name": f"generated-{self._seed}",
            "features": self._features,
            "classes": self._classes(),
            "slices": slices,
            "node": node,
            "claims": [self._claim(number) for number in range(self._choose(1, 1, 1, 2, 3))],
            "allocated": self._allocated(),
        }

    # What is published.

    def _drivers(self) -> tuple[str, ...]:
        return ("driver-a",) if self._chance(0.6) else ("driver-a", "driver-b")

    def _pools(self, driver: str) -> list[JsonObject]:
        slices: list[JsonObject] = []
        for number in range(self._choose(1, 1, 1, 2)):
            name = f"pool-{number}" if number or self._chance(0.7) else "node-1"
            for position, spec in enumerate(self._pool(driver, name)):
                label = f"s-{self._random.randint(0, 99):02d}-{driver}-{name}-{position}"
                slices.append({"metadata": {"name": label}, "spec": spec})
        return slices

    def _pool(self, driver: str, name: str) -> list[JsonObject]:
        has_counters = self._chance(0.5 if self._features["PartitionableDevices"] else 0.1)
        sets = [f"set-{number}" for number in range(self._choose(1, 1, 2))] if has_counters else []
        specs = [self._slice(driver, name, number, sets) for number in range(self._choose(1, 1, 2, 3))]
        if sets:
            counters = [{"name": set_, "counters": self._counters("12346", 2)} for set_ in sets]
            specs.append(self._located({"driver": driver, "sharedCounters": counters}))
        if self._chance_in_irregular(0.04):
            specs[-1].get("devices", []).clear()
        count = len(specs) + self._chance_in_irregular(0.03)
        for spec in specs:
            spec["pool"] = {"name": name, "generation": 1, "resourceSliceCount": count}
        if self._chance_in_irregular(0.08):
            other = {"name": name, "generation": self._choose(0, 2), "resourceSliceCount": 1}
            specs.append({**self._choose(*specs), "pool": other})
        return specs

    def _located(self, spec: JsonObject) -> JsonObject:
        if self._is_regular:
            return {**spec, "nodeName": "node-1"}
        place = self._choose(*["here"] * 6, "elsewhere", "all", "selector", "selector")
        if place == "all":
            return {**spec, "allNodes": True}
        if place == "selector":
            return {**spec, "nodeSelector": {"nodeSelectorTerms": [self._choose(*_TERMS)]}}
        return {**spec, "nodeName": "node-1" if place == "here" else "node-2"}

    def _slice(self, driver: str, pool: str, number: int, sets: Sequence[str]) -> JsonObject:
        is_per_device = self._chance(0.15)
        spec: JsonObject = {"driver": driver}
        spec = {**spec, "perDeviceNodeSelection": True} if is_per_device else self._located(spec)
        devices = [self._device(driver, f"d{number}-{each}", sets) for each in range(self._count())]
        spec["devices"] = [self._located(device) for device in devices] if is_per_device else devices
        if self._chance(0.05):
            spec["skipNodeOperations"] = ["*"]
        self._devices += [(driver, pool, device) for device in devices]
        return spec

    def _count(self) -> int:
        return self._choose(2, 3, 4, 5, 6) if self._is_regular else self._choose(0, 1, 2, 2, 3, 3, 4)

    def _device(self, driver: str, name: str, sets: Sequence[str]) -> JsonObject:
        device: JsonObject = {
            "name": "d0-0" if self._chance_in_irregular(0.02) else name,
            "attributes": self._attributes(driver),
        }
        if self._chance_in_irregular(0.01):
            device["attributes"]["bad"] = {}
        if self._chance(0.6):
            device["capacity"] = {name: self._capacity() for name in ("mem", "slots") if self._chance(0.7)}
        if self._chance(0.3):
            device["allowMultipleAllocations"] = True
        if sets and self._chance(0.8):
            device["consumesCounters"] = [self._consumption(set_) for set_ in self._sample(sets, len(sets))]
        if self._chance(0.15):
            effect = self._choose("NoSchedule", "NoExecute", "None")
            device["taints"] = [{"key": self._choose("k1", "k2"), "value": self._choose("", "v"), "effect": effect}]
        if self._chance(0.08):
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        if self._chance(0.05):
            device["bindsToNode"] = True
        return device

    def _attributes(self, driver: str) -> JsonObject:
        values: dict[str, JsonObject] = {
            "model": {"string": self._choose("x", "x", "y")},
            "size": {"int": self._choose(1, 2, 3)},
            "flag": {"bool": self._chance(0.5)},
            "ver": {"version": self._choose("1.0.0", "1.2.0", "2.0.0-rc.1")},
            "root": {"string": self._choose("r0", "r1", "r2")},
            "dom.com/numa": {"int": self._choose(0, 1)} if self._chance(0.9) else {"string": "0"},
        }
        is_full = self._is_regular or self._chance(0.7)
        attributes = {
            name if "/" in name or self._chance(0.7) else f"{driver}/{name}": value
            for name, value in values.items()
            if is_full or self._chance(0.6)
        }
        if self._chance(0.3):
            lists = ({"ints": [1, 2]}, {"string": "p"}, {"bools": [True]}, {"versions": ["1.0.0"]})
            attributes["tags"] = self._choose({"strings": self._sample("pqs", 2)}, *lists)
        if self._chance(0.12):
            attributes["dom.com/roots"] = self._choose(
                {"strings": self._sample("pqs", 3)}, {"string": self._choose(*"pqs")}
            )
        return attributes

    def _capacity(self) -> JsonObject:
        capacity: JsonObject = {"value": self._choose("1", "2", "3", "4", "6", "8", "2500m")}
        kind = self._choose("none", "none", "none", "range", "range", "values", "default")
        if kind == "default":
            capacity["requestPolicy"] = {"default": self._choose("1", "2")}
        elif kind == "values":
            values = sorted(self._sample("1234", 3))
            capacity["requestPolicy"] = {"default": values[0], "validValues": values}
        elif kind == "range":
            range_ = {"min": self._choose("1", "500m", "0", "2")}
            if self._chance(0.6):
                range_["max"] = self._choose("3", "4", "2500m")
            if self._chance(0.7):
                range_["step"] = self._choose("1", "500m", "2", "100m")
            default = {"default": self._choose(range_["min"], "1", "2")} if self._chance(0.8) else {}
            capacity["requestPolicy"] = {"validRange": range_, **default}
        return capacity

    def _consumption(self, set_: str) -> JsonObject:
        consumption: JsonObject = {"counterSet": "nope" if self._chance_in_irregular(0.02) else set_}
        consumption["counters"] = self._counters(("1", "1", "2", "3", "500m"), self._random.randint(1, 2))
        if self._chance(0.15 if self._features["CompatibilityGroups"] else 0.02):
            consumption["compatibilityGroups"] = self._sample(("mig", "vgpu", "ts"), 2)
        return consumption

    def _counters(self, amounts: Sequence[str], count: int) -> JsonObject:
        return {name: {"value": self._choose(*amounts)} for name in self._random.sample(["c0", "c1"], count)}

    # What is asked for.

    def _classes(self) -> list[JsonObject]:
        expression = self._choose("true", "true") if self._is_regular else self._choose("true", *_SELECTORS)
        plain = self._choose('device.driver == "driver-a"', "true", "true")
        return [
            {"metadata": {"name": "class-a"}, "spec": {"selectors": [_cel(plain)], **self._configured(0.3)}},
            {"metadata": {"name": "class-b"}, "spec": {"selectors": [_cel(expression)], **self._configured(0.4)}},
        ]

    def _configured(self, probability: float) -> JsonObject:
        parameters = {"number": self._random.randint(0, 9)}
        entry = {"opaque": {"driver": "driver-a", "parameters": parameters}}
        return {"config": [entry]} if self._chance(probability) else {}

    def _claim(self, number: int) -> JsonObject:
        requests = [self._request(f"r{position}") for position in range(self._choose(1, 1, 2, 2, 3))]
        names = [request["name"] for request in requests]
        names += [f"{each['name']}/{sub['name']}" for each in requests for sub in each.get("firstAvailable", ())]
        config = self._configured(0.3).get("config", [])
        for entry in config:
            entry["requests"] = self._sample(names, 2) if self._chance(0.7) else []
        constraints: list[JsonObject] = []
        while self._chance(0.4) and len(constraints) < 3:
            kind = self._choose("matchAttribute", "matchAttribute", "distinctAttribute")
            over = {"requests": self._sample(names, 3)} if self._chance(0.5) else {}
            constraints.append({kind: self._choose(*_COMPARED), **over})
        return {
            "metadata": {"name": f"claim-{number}", "namespace": "default"},
            "spec": {"devices": {"requests": requests, "constraints": constraints, "config": config}},
        }

    def _request(self, name: str) -> JsonObject:
        if self._chance(0.25):
            alternatives = range(self._choose(1, 2, 2, 3))
            return {
                "name": name,
                "firstAvailable": [{"name": f"s{each}", **self._device_request()} for each in alternatives],
            }
        ask = self._device_request()
        if self._chance(0.12):
            ask["adminAccess"] = self._chance(0.8)
        return {"name": name, "exactly": ask}

    def _device_request(self) -> JsonObject:
        class_ = "nope" if self._chance_in_irregular(0.02) else self._choose("class-a", "class-a", "class-b")
        ask: JsonObject = {
            "deviceClassName": class_,
            "allocationMode": "ExactCount",
            "count": self._choose(1, 1, 1, 2, 2, 3),
        }
        if self._chance(0.02 if self._is_regular else 0.12):
            ask["allocationMode"] = "All"
            del ask["count"]
        if self._chance(0.35):
            among = _REGULAR_SELECTORS if self._is_regular else _SELECTORS
            ask["selectors"] = [_cel(self._choose(*among)) for _ in range(self._choose(1, 1, 2))]
        if self._chance(0.2):
            key = self._choose("", "k1", "k2")
            operator = "Exists" if not key or self._chance(0.6) else "Equal"
            ask["tolerations"] = [{"key": key, "operator": operator, "effect": self._choose("", "NoSchedule")}]
        if self._chance(0.3 if self._features["ConsumableCapacity"] else 0.03):
            ask["capacity"] = {
                "requests": {name: self._choose(*_AMOUNTS) for name in self._sample(("mem", "slots"), 2)}
            }
        if self._chance(0.12 if self._features["DerivedAttributes"] else 0.02):
            ask["derivedAttributes"] = [{"name": "shared", "expression": self._choose(*_DERIVED)}]
        return ask

    # What is taken.

    def _allocated(self) -> JsonObject:
        devices: list[JsonObject] = []
        shares: list[JsonObject] = []
        consumed: list[JsonObject] = []
        known = {(driver, pool, device["name"]): device for driver, pool, device in reversed(self._devices)}
        for (driver, pool, name), device in known.items():
            id_ = {"driver": driver, "pool": pool, "device": name}
            if not self._chance(0.15):
                continue
            if not device.get("allowMultipleAllocations") or self._chance(0.2):
                devices.append(id_)
                continue
            shares.append({**id_, "shareID": f"00000000-0000-0000-0000-{len(shares):012d}"})
            if device.get("capacity"):
                amounts = {name: self._choose("1", "500m", "2") for name in device["capacity"]}
                consumed.append({**id_, "capacity": amounts})
        return {"devices": devices, "sharedDevices": shares, "consumedCapacity": consumed}


def _cel(expression: str) -> JsonObject:
    return {"cel": {"expression": expression}}
