"""Small clusters and pods as a generator makes them: everything that structured DRA knows, right and wrong.

A case is what ``tests.conformance.allocator`` reads, without an answer. Two kinds alternate: *calm* ones, in which
nearly everything can be used and fits, so that the search has much to do; and odd ones.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, TypeVar

from api.model.base import JsonObject
from tests.conformance.allocator import FLAGS

ElementT = TypeVar("ElementT")

# Those that calm cases can evaluate on every device come first.
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
_CALM_SELECTORS: Final = _SELECTORS[:9]
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
_STRANGE: Final = (*_HUGE, "-1", "-500m", "-9223372036854775808")
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


def case(seed: int) -> JsonObject:
    """One case; even seeds are calm."""
    return _Author(seed).case()


def spoiled(seed: int) -> JsonObject:
    """A case with amounts that nobody should publish or ask for.

    Not those that we refuse by intention: negative counters, ranges beyond 64 bits or below zero.
    """
    random = Random(seed)
    whole = case(seed)
    amounts = [*_amounts(whole["slices"]), *_amounts([claim["spec"] for claim in whole["claims"]])]
    for _ in range(random.randint(1, 3) if amounts else 0):
        holder, key = random.choice(amounts)
        holder[key] = random.choice(_HUGE if key == "value" else _SMALL if key in ("min", "step") else _STRANGE)
    return whole


def _amounts(tree: Any) -> Iterator[tuple[Any, str | int]]:
    """Every amount in a tree of JSON, by what holds it and its place there."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if key in ("value", "min", "max", "step", "default"):
            yield tree, key
        elif key == "requests" and isinstance(value, dict):
            yield from ((value, name) for name in value)
        elif key != "taints":
            yield from _amounts(value)
    for value in tree if isinstance(tree, list) else ():
        yield from _amounts(value)


class _Author:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._is_calm = seed % 2 == 0
        self._features = {flag: self._is_calm or self._often(0.85) for flag in FLAGS}
        for flag in ("ListTypeAttributes", "FractionalCapacityRange"):
            self._features[flag] = self._often(0.5)
        if not self._is_calm and self._often(0.5):
            self._features["DerivedAttributes"] = self._features["CompatibilityGroups"] = True
        self._devices: list[tuple[str, str, JsonObject]] = []

    def _often(self, probability: float) -> bool:
        return self._random.random() < probability

    def _odd(self, probability: float) -> bool:
        return not self._is_calm and self._often(probability)

    def _one(self, *of: ElementT) -> ElementT:
        return self._random.choice(of)

    def _some(self, of: Sequence[ElementT], most: int) -> list[ElementT]:
        return self._random.sample(of, self._random.randint(1, min(most, len(of))))

    def case(self) -> JsonObject:
        slices = [each for driver in self._drivers() for each in self._pools(driver)]
        self._random.shuffle(slices)
        labels = {"region": self._one("r1", "r2", "r3"), "num": self._one("2", "5", "abc")}
        node: JsonObject = {"metadata": {"name": "node-1", "labels": labels}}
        if self._often(0.5):
            node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
        return {
            "name": f"generated-{self._seed}",
            "features": self._features,
            "classes": self._classes(),
            "slices": slices,
            "node": node,
            "claims": [self._claim(number) for number in range(self._one(1, 1, 1, 2, 3))],
            "allocated": self._allocated(),
        }

    # What is published.

    def _drivers(self) -> tuple[str, ...]:
        return ("driver-a",) if self._often(0.6) else ("driver-a", "driver-b")

    def _pools(self, driver: str) -> list[JsonObject]:
        slices: list[JsonObject] = []
        for number in range(self._one(1, 1, 1, 2)):
            name = f"pool-{number}" if number or self._often(0.7) else "node-1"
            for position, spec in enumerate(self._pool(driver, name)):
                label = f"s-{self._random.randint(0, 99):02d}-{driver}-{name}-{position}"
                slices.append({"metadata": {"name": label}, "spec": spec})
        return slices

    def _pool(self, driver: str, name: str) -> list[JsonObject]:
        has_counters = self._often(0.5 if self._features["PartitionableDevices"] else 0.1)
        sets = [f"set-{number}" for number in range(self._one(1, 1, 2))] if has_counters else []
        specs = [self._slice(driver, name, number, sets) for number in range(self._one(1, 1, 2, 3))]
        if sets:
            counters = [{"name": set_, "counters": self._counters("12346", 2)} for set_ in sets]
            specs.append(self._located({"driver": driver, "sharedCounters": counters}))
        if self._odd(0.04):
            specs[-1].get("devices", []).clear()
        count = len(specs) + self._odd(0.03)
        for spec in specs:
            spec["pool"] = {"name": name, "generation": 1, "resourceSliceCount": count}
        if self._odd(0.08):
            other = {"name": name, "generation": self._one(0, 2), "resourceSliceCount": 1}
            specs.append({**self._one(*specs), "pool": other})
        return specs

    def _located(self, spec: JsonObject) -> JsonObject:
        if self._is_calm:
            return {**spec, "nodeName": "node-1"}
        place = self._one(*["here"] * 6, "elsewhere", "all", "selector", "selector")
        if place == "all":
            return {**spec, "allNodes": True}
        if place == "selector":
            return {**spec, "nodeSelector": {"nodeSelectorTerms": [self._one(*_TERMS)]}}
        return {**spec, "nodeName": "node-1" if place == "here" else "node-2"}

    def _slice(self, driver: str, pool: str, number: int, sets: Sequence[str]) -> JsonObject:
        is_per_device = self._often(0.15)
        spec: JsonObject = {"driver": driver}
        spec = {**spec, "perDeviceNodeSelection": True} if is_per_device else self._located(spec)
        devices = [self._device(driver, f"d{number}-{each}", sets) for each in range(self._count())]
        spec["devices"] = [self._located(device) for device in devices] if is_per_device else devices
        if self._often(0.05):
            spec["skipNodeOperations"] = ["*"]
        self._devices += [(driver, pool, device) for device in devices]
        return spec

    def _count(self) -> int:
        return self._one(2, 3, 4, 5, 6) if self._is_calm else self._one(0, 1, 2, 2, 3, 3, 4)

    def _device(self, driver: str, name: str, sets: Sequence[str]) -> JsonObject:
        device: JsonObject = {"name": "d0-0" if self._odd(0.02) else name, "attributes": self._attributes(driver)}
        if self._odd(0.01):
            device["attributes"]["bad"] = {}
        if self._often(0.6):
            device["capacity"] = {name: self._capacity() for name in ("mem", "slots") if self._often(0.7)}
        if self._often(0.3):
            device["allowMultipleAllocations"] = True
        if sets and self._often(0.8):
            device["consumesCounters"] = [self._consumption(set_) for set_ in self._some(sets, len(sets))]
        if self._often(0.15):
            effect = self._one("NoSchedule", "NoExecute", "None")
            device["taints"] = [{"key": self._one("k1", "k2"), "value": self._one("", "v"), "effect": effect}]
        if self._often(0.08):
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        if self._often(0.05):
            device["bindsToNode"] = True
        return device

    def _attributes(self, driver: str) -> JsonObject:
        values: dict[str, JsonObject] = {
            "model": {"string": self._one("x", "x", "y")},
            "size": {"int": self._one(1, 2, 3)},
            "flag": {"bool": self._often(0.5)},
            "ver": {"version": self._one("1.0.0", "1.2.0", "2.0.0-rc.1")},
            "root": {"string": self._one("r0", "r1", "r2")},
            "dom.com/numa": {"int": self._one(0, 1)} if self._often(0.9) else {"string": "0"},
        }
        is_full = self._is_calm or self._often(0.7)
        attributes = {
            name if "/" in name or self._often(0.7) else f"{driver}/{name}": value
            for name, value in values.items()
            if is_full or self._often(0.6)
        }
        if self._often(0.3):
            lists = ({"ints": [1, 2]}, {"string": "p"}, {"bools": [True]}, {"versions": ["1.0.0"]})
            attributes["tags"] = self._one({"strings": self._some("pqs", 2)}, *lists)
        if self._often(0.12):
            attributes["dom.com/roots"] = self._one({"strings": self._some("pqs", 3)}, {"string": self._one(*"pqs")})
        return attributes

    def _capacity(self) -> JsonObject:
        capacity: JsonObject = {"value": self._one("1", "2", "3", "4", "6", "8", "2500m")}
        kind = self._one("none", "none", "none", "range", "range", "values", "default")
        if kind == "default":
            capacity["requestPolicy"] = {"default": self._one("1", "2")}
        elif kind == "values":
            values = sorted(self._some("1234", 3))
            capacity["requestPolicy"] = {"default": values[0], "validValues": values}
        elif kind == "range":
            range_ = {"min": self._one("1", "500m", "0", "2")}
            if self._often(0.6):
                range_["max"] = self._one("3", "4", "2500m")
            if self._often(0.7):
                range_["step"] = self._one("1", "500m", "2", "100m")
            default = {"default": self._one(range_["min"], "1", "2")} if self._often(0.8) else {}
            capacity["requestPolicy"] = {"validRange": range_, **default}
        return capacity

    def _consumption(self, set_: str) -> JsonObject:
        consumption: JsonObject = {"counterSet": "nope" if self._odd(0.02) else set_}
        consumption["counters"] = self._counters(("1", "1", "2", "3", "500m"), self._random.randint(1, 2))
        if self._often(0.15 if self._features["CompatibilityGroups"] else 0.02):
            consumption["compatibilityGroups"] = self._some(("mig", "vgpu", "ts"), 2)
        return consumption

    def _counters(self, amounts: Sequence[str], count: int) -> JsonObject:
        return {name: {"value": self._one(*amounts)} for name in self._random.sample(["c0", "c1"], count)}

    # What is asked for.

    def _classes(self) -> list[JsonObject]:
        expression = self._one("true", "true") if self._is_calm else self._one("true", *_SELECTORS)
        plain = self._one('device.driver == "driver-a"', "true", "true")
        return [
            {"metadata": {"name": "class-a"}, "spec": {"selectors": [_cel(plain)], **self._configured(0.3)}},
            {"metadata": {"name": "class-b"}, "spec": {"selectors": [_cel(expression)], **self._configured(0.4)}},
        ]

    def _configured(self, probability: float) -> JsonObject:
        parameters = {"number": self._random.randint(0, 9)}
        entry = {"opaque": {"driver": "driver-a", "parameters": parameters}}
        return {"config": [entry]} if self._often(probability) else {}

    def _claim(self, number: int) -> JsonObject:
        requests = [self._request(f"r{position}") for position in range(self._one(1, 1, 2, 2, 3))]
        names = [request["name"] for request in requests]
        names += [f"{each['name']}/{sub['name']}" for each in requests for sub in each.get("firstAvailable", ())]
        config = self._configured(0.3).get("config", [])
        for entry in config:
            entry["requests"] = self._some(names, 2) if self._often(0.7) else []
        constraints: list[JsonObject] = []
        while self._often(0.4) and len(constraints) < 3:
            kind = self._one("matchAttribute", "matchAttribute", "distinctAttribute")
            over = {"requests": self._some(names, 3)} if self._often(0.5) else {}
            constraints.append({kind: self._one(*_COMPARED), **over})
        return {
            "metadata": {"name": f"claim-{number}", "namespace": "default"},
            "spec": {"devices": {"requests": requests, "constraints": constraints, "config": config}},
        }

    def _request(self, name: str) -> JsonObject:
        if self._often(0.25):
            alternatives = range(self._one(1, 2, 2, 3))
            return {"name": name, "firstAvailable": [{"name": f"s{each}", **self._ask()} for each in alternatives]}
        ask = self._ask()
        if self._often(0.12):
            ask["adminAccess"] = self._often(0.8)
        return {"name": name, "exactly": ask}

    def _ask(self) -> JsonObject:
        class_ = "nope" if self._odd(0.02) else self._one("class-a", "class-a", "class-b")
        ask: JsonObject = {
            "deviceClassName": class_,
            "allocationMode": "ExactCount",
            "count": self._one(1, 1, 1, 2, 2, 3),
        }
        if self._often(0.02 if self._is_calm else 0.12):
            ask["allocationMode"] = "All"
            del ask["count"]
        if self._often(0.35):
            among = _CALM_SELECTORS if self._is_calm else _SELECTORS
            ask["selectors"] = [_cel(self._one(*among)) for _ in range(self._one(1, 1, 2))]
        if self._often(0.2):
            key = self._one("", "k1", "k2")
            operator = "Exists" if not key or self._often(0.6) else "Equal"
            ask["tolerations"] = [{"key": key, "operator": operator, "effect": self._one("", "NoSchedule")}]
        if self._often(0.3 if self._features["ConsumableCapacity"] else 0.03):
            ask["capacity"] = {"requests": {name: self._one(*_AMOUNTS) for name in self._some(("mem", "slots"), 2)}}
        if self._often(0.12 if self._features["DerivedAttributes"] else 0.02):
            ask["derivedAttributes"] = [{"name": "shared", "expression": self._one(*_DERIVED)}]
        return ask

    # What is taken.

    def _allocated(self) -> JsonObject:
        devices: list[JsonObject] = []
        shares: list[JsonObject] = []
        consumed: list[JsonObject] = []
        known = {(driver, pool, device["name"]): device for driver, pool, device in reversed(self._devices)}
        for (driver, pool, name), device in known.items():
            id_ = {"driver": driver, "pool": pool, "device": name}
            if not self._often(0.15):
                continue
            if not device.get("allowMultipleAllocations") or self._often(0.2):
                devices.append(id_)
                continue
            shares.append({**id_, "shareID": f"00000000-0000-0000-0000-{len(shares):012d}"})
            if device.get("capacity"):
                amounts = {name: self._one("1", "500m", "2") for name in device["capacity"]}
                consumed.append({**id_, "capacity": amounts})
        return {"devices": devices, "sharedDevices": shares, "consumedCapacity": consumed}


def _cel(expression: str) -> JsonObject:
    return {"cel": {"expression": expression}}
