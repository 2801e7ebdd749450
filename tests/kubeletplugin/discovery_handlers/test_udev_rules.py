"""Rules of udev: the grammar of match keys that Akri's handler accepts, with the meaning of udev(7)."""

import fnmatch
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_rules import MAX_RULE, UdevRuleError, parse_udev_rule


@dataclass
class Device:
    """A device in memory."""

    name: str = "video0"
    devpath: str = "/devices/video0"
    subsystem: str = ""
    driver: str = ""
    tags: frozenset[str] = frozenset()
    parent: "Device | None" = None
    properties: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)

    def get_property(self, name: str) -> str:
        return self.properties.get(name, "")

    def read_attribute(self, name: str) -> str | None:
        return self.attributes.get(name)


HUB = Device(
    name="1-1",
    devpath="/devices/pci0/usb1/1-1",
    subsystem="usb",
    driver="usb",
    tags=frozenset({"seat"}),
    attributes={"idVendor": "046d", "product": "Some Camera  "},
)
CAMERA = Device(
    name="video0",
    devpath="/devices/pci0/usb1/1-1/video4linux/video0",
    subsystem="video4linux",
    tags=frozenset({"uaccess", "webcam"}),
    parent=Device(name="1-1:1.0", subsystem="usb", driver="uvcvideo", parent=HUB),
    properties={"MAJOR": "81", "ID_V4L_CAPABILITIES": ":capture:"},
    attributes={"name": "Camera", "index": "0"},
)

AKRI_EXAMPLES = [
    ('SUBSYSTEM=="video4linux"', 1),
    ('KERNEL=="video*", ENV{ID_SERIAL}=="?*"', 2),
    ('ENV{ID_PATH}=="?*", KERNEL=="video*|vbi*", DRIVER=="some driver"', 3),
    ('TAG=="uaccess",ENV{MAJOR}!=""', 2),
    ('KERNEL=="video[0-9]", DEVPATH!="/sys/path/to/device"', 2),
    ('ATTR{idProduct}=="1900", ENV{ID_MM_ERICSSON_MBM}=="1"', 2),
    ('ATTR{idVendor}=="0bdd", ENV{a name}=="Keyboard that has a mouse"', 2),
    ('KERNEL=="video[0-9]*", ENV{ID_V4L_CAPABILITIES}==":capture:"', 2),
    ('SUBSYSTEMS=="pci"', 1),
    ('ATTRS{idVendor}=="0bdd", DRIVERS!="a driver"', 2),
    ('TAGS=="uaccess"', 1),
    ('KERNELS=="card[0-9]*"', 1),
]
"""Rules of the forms that Akri's own test accepts (``test/example.rules``), with their numbers of terms."""


@pytest.mark.parametrize(("rule", "terms"), AKRI_EXAMPLES)
def test_rules_that_akri_accepts_are_accepted(rule: str, terms: int) -> None:
    assert len(parse_udev_rule(rule).terms) == terms


@pytest.mark.parametrize(
    "rule",
    [
        'RUN{builtin}+="uaccess"',
        'LABEL="some label"',
        'GOTO="end"',
        'IMPORT{program}="v4l_id $devnode"',
        'OPTIONS="some options"',
        'OWNER="owner"',
        'GROUP="group"',
        'MODE="mode"',
        'WAIT_FOR="queue/read_q"',
        'ACTION=="this action"',
        'NAME=="another_disk"',
        'SYMLINK+="v4l/by-id"',
        'TEST{key}=="value"',
        'PROGRAM=="some program"',
        'RESULT=="some result"',
        'CONST{key}=="value"',
        'SECLABEL{key}=="value"',
        'SYSCTL{key}=="value"',
        'TAG-="uaccess"',
        'TAG+="uaccess"',
        'TAG="uaccess"',
        'TAG:="uaccess"',
    ],
)
def test_rules_that_akri_refuses_are_refused(rule: str) -> None:
    with pytest.raises(UdevRuleError):
        parse_udev_rule(rule)


@pytest.mark.parametrize(
    ("rule", "place", "reason"),
    [
        ("", 1, "expected one of the keys"),
        ('KERNEL=="a",', 13, "expected one of the keys"),
        ('TYPO=="a"', 1, "'TYPO' is none of the keys ATTR, ATTRS"),
        ('kernel=="a"', 1, "'kernel' is none of the keys"),
        ('KERNEL=="a" SUBSYSTEM=="b"', 13, "expected a comma or the end"),
        ("KERNEL==a", 9, "expected a value in double quotes"),
        ('KERNEL=="a', 10, "no closing quote"),
        ('KERNEL~"a"', 7, "expected == or !="),
        ('KERNEL="a"', 7, "assign nothing"),
        ('KERNEL{x}=="a"', 7, "KERNEL has no name in braces"),
        ('ATTR=="a"', 5, "ATTR needs a name in braces"),
        ('ATTR{}=="a"', 6, "needs a name and a closing brace"),
        ('ATTR{x=="a"', 6, "needs a name and a closing brace"),
        ('ATTR{../../../etc/shadow}=="a"', 6, "is no attribute of a device"),
        ('ATTRS{/etc/shadow}=="a"', 7, "is no attribute of a device"),
        ('ATTR{a//b}=="a"', 6, "is no attribute of a device"),
        ('KERNEL=="[a"', 10, "opening bracket without a closing one"),
        ('KERNEL=="[[:digit:]]"', 10, "classes such as"),
        ('KERNEL=="a\\"', 10, "ends with a backslash"),
        ('KERNEL=="a\x00"', 10, "a character that is no text"),
        ('PROGRAM=="/bin/sh"', 1, "PROGRAM says nothing about what a device is"),
        (f'KERNEL=="{"a" * MAX_RULE}"', MAX_RULE + 1, "longer than"),
    ],
)
def test_an_error_says_where_a_rule_ends_to_be_one_and_why(rule: str, place: int, reason: str) -> None:
    with pytest.raises(UdevRuleError) as caught:
        parse_udev_rule(rule)
    assert f"character {place}: " in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ('KERNEL=="video0"', True),
        ('KERNEL=="video"', False),
        ('KERNEL=="video*"', True),
        ('KERNEL=="vbi*|video?"', True),
        ('KERNEL=="vbi*|radio?"', False),
        ('KERNEL!="video0"', False),
        ('KERNEL!="vbi*"', True),
        ('SUBSYSTEM=="video4linux", KERNEL=="vbi*"', False),
        ('SUBSYSTEM=="usb"', False),
        ('SUBSYSTEMS=="usb"', True),
        ('SUBSYSTEMS=="pci"', False),
        ('SUBSYSTEMS!="pci"', True),
        ('DEVPATH=="*/video0"', True),
        ('DEVPATH!="/sys/path/to/device"', True),
        # a driver that there is not is empty
        ('DRIVER==""', True),
        ('DRIVER=="?*"', False),
        ('DRIVERS=="uvcvideo"', True),
        ('TAG=="web*"', True),
        ('TAG=="seat"', False),
        ('TAG!="seat"', True),
        ('TAG!="webcam"', False),
        ('TAGS=="seat"', True),
        ('ENV{MAJOR}=="81"', True),
        ('ENV{MAJOR}!=""', True),
        ('ENV{ID_SERIAL}!=""', False),
        ('ENV{ID_SERIAL}==""', True),
        ('ENV{ID_V4L_CAPABILITIES}=="*:capture:*"', True),
        # an attribute that there is not matches no pattern
        ('ATTR{name}=="Camera"', True),
        ('ATTR{idVendor}=="*"', False),
        ('ATTR{idVendor}!="046d"', True),
        ('ATTRS{idVendor}=="046d"', True),
        # spaces at the end count if the pattern has one there
        ('ATTRS{product}=="Some Camera"', True),
        ('ATTRS{product}=="Some Camera  "', True),
        ('ATTRS{product}=="Some Camera "', False),
        # all keys of the plural look at the same device
        ('ATTRS{idVendor}=="046d", DRIVERS=="usb"', True),
        ('ATTRS{idVendor}=="046d", DRIVERS=="uvcvideo"', False),
        ('ATTRS{idVendor}=="046d", KERNELS=="1-1"', True),
        ('ATTRS{idVendor}=="046d", SUBSYSTEM=="video4linux"', True),
        ('  KERNEL  ==  "video0"  ,  SUBSYSTEM=="video4linux"  ', True),
    ],
)
def test_a_rule_means_what_udev_says(rule: str, verdict: bool) -> None:
    assert parse_udev_rule(rule).matches(CAMERA) is verdict


@pytest.mark.parametrize(
    ("pattern", "text", "verdict"),
    [
        ("[0-9]", "5", True),
        ("[0-9]", "x", False),
        ("[!0-9]", "x", True),
        ("[^0-9]", "5", False),
        ("[abc-]", "-", True),
        ("[]a]", "]", True),
        ("[]a]", "a", True),
        ("[!]]", "]", False),
        ("\\*", "*", True),
        ("\\*", "x", False),
        ("a*b*c", "aXbYbZc", True),
        ("a*b*c", "aXbYbZ", False),
        ("*", "", True),
        ("?", "", False),
        ("", "", True),
        ("", "a", False),
        ("a|", "", True),
        ("card[0-9]*", "card0-DP-1", True),
    ],
)
def test_a_pattern_is_one_of_fnmatch(pattern: str, text: str, verdict: bool) -> None:
    assert parse_udev_rule(f'KERNEL=="{pattern}"').matches(Device(name=text)) is verdict


@given(
    patterns=st.lists(st.text(alphabet="ab*?", max_size=8), min_size=1, max_size=3),
    text=st.text(alphabet="ab", max_size=10),
    is_equality=st.booleans(),
)
def test_stars_and_question_marks_mean_what_python_says(patterns: list[str], text: str, is_equality: bool) -> None:
    rule = f'KERNEL{"==" if is_equality else "!="}"{"|".join(patterns)}"'
    expected = any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)
    assert parse_udev_rule(rule).matches(Device(name=text)) == (expected == is_equality)


KEYS = st.sampled_from(["KERNEL", "SUBSYSTEMS", "DRIVER", "TAG", "DEVPATH", "ENV{a b}", "ATTR{x/y}", "ATTRS{z}"])
VALUES = st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs"], exclude_characters='"[\\|'), max_size=20)
SPACES = st.text(alphabet=" \t", max_size=2)


@given(terms=st.lists(st.tuples(KEYS, st.sampled_from(["==", "!="]), VALUES), min_size=1, max_size=5), data=st.data())
def test_what_is_written_by_the_grammar_is_read_back_with_any_spaces(
    terms: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    def space() -> str:
        return data.draw(SPACES)

    text = ",".join(f'{space()}{key}{space()}{sign}{space()}"{value}"{space()}' for key, sign, value in terms)
    if not all(value.isprintable() for _, _, value in terms):
        with pytest.raises(UdevRuleError):
            parse_udev_rule(text)
        return
    found = parse_udev_rule(text).terms
    written = [(each.key + (f"{{{each.name}}}" if each.name else ""), each.is_equality, each.value) for each in found]
    assert written == [(key, sign == "==", value) for key, sign, value in terms]


@given(st.text(alphabet=st.sampled_from([*'KERNELATTRSENV{}=!"[]*?|\\,- a\x00']), max_size=60))
def test_any_text_is_a_rule_or_an_error_within_it(text: str) -> None:
    place = find_error(text)
    assert place is None or 0 <= place <= len(text)


def find_error(text: str) -> int | None:
    """Where a text ends to be a rule; None: it is one, which can be asked about any device."""
    try:
        rule = parse_udev_rule(text)
    except UdevRuleError as error:
        return error.place
    rule.matches(CAMERA)
    return None


def test_a_pattern_that_keeps_searches_by_regular_expressions_busy_is_matched_at_once() -> None:
    """With a search that goes back to each star, this would not end within a day."""
    rule = parse_udev_rule(f'ATTR{{x}}=="{"a*" * 400}b"')
    assert not rule.matches(Device(attributes={"x": "a" * 4096}))


@pytest.mark.parametrize(
    ("rule", "subsystems"),
    [
        ('SUBSYSTEM=="block|net"', ("block", "net")),
        ('SUBSYSTEM=="b*"', ()),
        ('SUBSYSTEM!="block"', ()),
        ('SUBSYSTEMS=="block"', ()),
        ('KERNEL=="sda"', ()),
    ],
)
def test_a_rule_says_which_subsystems_need_to_be_looked_at(rule: str, subsystems: tuple[str, ...]) -> None:
    assert parse_udev_rule(rule).subsystems == subsystems
