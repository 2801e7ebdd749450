"""The spec directories of a machine, read again only as far as they changed."""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerf_dra.cdi import Cache, ContainerEdits, Device, Kind, Spec, Store, encode_json, watch
from kerf_dra.cdi import cache as cache_module

KIND = Kind(vendor="acme.io", class_name="widget")


def spec(*names: str, value: str = "b") -> Spec:
    edits = ContainerEdits(env=(f"A={value}",))
    return Spec(kind=KIND, devices=tuple(Device(name=name, container_edits=edits) for name in names))


def devices(cache: Cache) -> list[str]:
    return [name.partition("=")[2] for name in cache.catalog.devices]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are opened, as they are."""
    opened: list[Path] = []
    original = cache_module._read

    def opening(path: Path) -> Any:
        opened.append(path)
        return original(path)

    monkeypatch.setattr(cache_module, "_read", opening)
    return opened


def much_later() -> int:
    return 2**62


def test_directories_are_read_weakest_first(tmp_path: Path) -> None:
    low, high = tmp_path / "low", tmp_path / "high"
    Store(low).write("a", spec("w1", "w2", value="low"))
    Store(high).write("a", spec("w1", value="high"))
    cache = Cache([low, high])
    assert devices(cache) == ["w1", "w2"]
    assert cache.catalog.devices["acme.io/widget=w1"].device.container_edits.env == ("A=high",)


def test_a_directory_that_is_not_there_is_no_error_and_is_found_when_it_comes(tmp_path: Path) -> None:
    cache = Cache([tmp_path / "later"])
    assert cache.catalog.errors == {}
    assert cache.refresh() is None
    Store(tmp_path / "later").write("a", spec("w1"))
    change = cache.refresh()
    assert change is not None
    assert change.added == ("acme.io/widget=w1",)


def test_only_json_and_yaml_files_of_the_directory_itself_count(tmp_path: Path) -> None:
    content = encode_json(spec("w1")).decode()
    for name in ("a.yml", "b.JSON", "c.json.tmp", "d", "e.yaml~"):
        (tmp_path / name).write_text(content)
    (tmp_path / "deeper.json").mkdir()
    (tmp_path / "deeper.json" / "f.json").write_text(content)
    assert devices(Cache([tmp_path])) == []
    (tmp_path / ".hidden.yaml").write_text(content)
    assert devices(Cache([tmp_path])) == ["w1"]


def test_one_bad_file_never_hides_the_others(tmp_path: Path) -> None:
    Store(tmp_path).write("good", spec("w1"))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "to-directory.json").symlink_to(tmp_path)
    (tmp_path / "to-device.json").symlink_to("/dev/zero")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "large.yaml").write_bytes(b"#" * (5 * 1024 * 1024))
    cache = Cache([tmp_path])
    assert devices(cache) == ["w1"]
    assert sorted(path.name for path in cache.catalog.errors) == [
        "broken.json",
        "dangling.json",
        "empty.yaml",
        "fifo.json",
        "large.yaml",
        "loop.json",
        "to-device.json",
        "to-directory.json",
    ]


@given(contents=st.lists(st.binary(max_size=40), max_size=4))
@settings(max_examples=20)
def test_whatever_lies_there_the_good_files_are_used(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    directory = tmp_path_factory.mktemp("cdi")
    Store(directory).write("good", spec("w1"))
    for number, content in enumerate(contents):
        (directory / f"{number}.json").write_bytes(content)
    cache = Cache([directory])
    assert devices(cache) == ["w1"]
    assert len(cache.catalog.errors) == len(contents)


def test_a_file_where_a_directory_should_be_is_an_error_of_that_directory_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Store(tmp_path / "good").write("a", spec("w1"))
    cache = Cache([tmp_path / "file", tmp_path / "good"])
    assert devices(cache) == ["w1"]
    assert cache.catalog.errors == {tmp_path / "file": ("cannot be read: Not a directory",)}


def test_a_directory_that_old_readers_pass_over_is_read_and_reported(tmp_path: Path) -> None:
    Store(tmp_path / "real").write("a", spec("w1"))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    cache = Cache([tmp_path / "link"])
    assert devices(cache) == ["w1"]
    (error,) = cache.catalog.errors[tmp_path / "link"]
    assert "symbolic link" in error
    assert Cache([tmp_path / "link"], semantics="main").catalog.errors == {}


def test_unchanged_files_are_not_read_again(tmp_path: Path, reads: list[Path]) -> None:
    store = Store(tmp_path)
    for name in ("a", "b", "c"):
        store.write(name, spec(name))
    cache = Cache([tmp_path], clock_ns=much_later)
    assert len(reads) == 3
    assert cache.refresh() is None
    assert len(reads) == 3
    store.write("b", spec("b", value="c"))
    change = cache.refresh()
    assert change is not None
    assert change.changed == ("acme.io/widget=b",)
    assert reads[3:] == [tmp_path / "b.json"]


def test_a_file_that_just_changed_is_read_once_more(tmp_path: Path, reads: list[Path]) -> None:
    """Its times may not have moved on yet when it changes again."""
    Store(tmp_path).write("a", spec("a"))
    at = (tmp_path / "a.json").stat().st_mtime_ns
    times = iter([at + 1_000_000, at + 1_000_000_000, at + 2_000_000_000])
    cache = Cache([tmp_path], clock_ns=lambda: next(times))
    assert cache.refresh() is None
    assert cache.refresh() is None
    assert len(reads) == 2


def test_a_file_that_goes_while_we_look_is_an_error_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed, then deleted before it is opened: as when its claim ends at that moment."""
    Store(tmp_path).write("a", spec("a"))
    original = cache_module._read

    def vanishing(path: Path) -> Any:
        path.unlink()
        return original(path)

    monkeypatch.setattr(cache_module, "_read", vanishing)
    cache = Cache([tmp_path])
    assert list(cache.catalog.errors) == [tmp_path / "a.json"]
    assert cache.refresh() is not None
    assert cache.catalog.errors == {}


def test_every_way_a_file_can_come_go_or_change_is_seen(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "cdi", tmp_path / "elsewhere"
    store = Store(directory)
    store.write("a", spec("a"))
    Store(elsewhere).write("b", spec("b"))
    Store(elsewhere).write("c", spec("c"))
    cache = Cache([directory], clock_ns=much_later)

    def after(action: Any) -> tuple[tuple[str, ...], ...]:
        action()
        change = cache.refresh()
        assert change is not None
        return tuple(tuple(name[-1] for name in names) for names in (change.added, change.removed, change.changed))

    assert after(lambda: (elsewhere / "b.json").rename(directory / "b.json")) == (("b",), (), ())
    assert after(lambda: (directory / "c.json").symlink_to(elsewhere / "c.json")) == (("c",), (), ())
    assert after(lambda: Store(elsewhere).write("c", spec("d"))) == (("d",), ("c",), ())
    assert after(lambda: (directory / "a.json").write_bytes(encode_json(spec("a", value="z")))) == ((), (), ("a",))
    assert after(lambda: store.remove("b")) == ((), ("b",), ())
    assert after(lambda: (directory / "a.json").rename(directory / "z.json")) == ((), (), ("a",))
    assert after(lambda: directory.rename(tmp_path / "gone")) == ((), ("a", "d"), ())


def test_new_errors_are_part_of_the_difference(tmp_path: Path) -> None:
    cache = Cache([tmp_path])
    (tmp_path / "a.json").write_text("{")
    change = cache.refresh()
    assert change is not None
    assert list(change.errors) == [tmp_path / "a.json"]
    assert cache.refresh() is None


def test_watching_yields_each_change_and_waits_in_between(tmp_path: Path) -> None:
    store, waits = Store(tmp_path), []
    actions: Iterator[Callable[[], object]] = iter(
        [lambda: store.write("a", spec("a")), lambda: None, lambda: store.remove("a")]
    )

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        next(actions)()

    first, second = islice(watch(Cache([tmp_path]), interval_s=0.5, sleep=sleep), 2)
    assert first.added == second.removed == ("acme.io/widget=a",)
    assert waits == [0.5, 0.5, 0.5]


def test_later_readers_take_what_earlier_ones_refuse(tmp_path: Path) -> None:
    text = encode_json(spec("w")).decode().replace("acme.io/widget", "a/widget")
    (tmp_path / "a.json").write_text(text)
    assert devices(Cache([tmp_path])) == []
    assert devices(Cache([tmp_path], semantics="main")) == ["w"]


def test_an_entry_that_cannot_be_looked_at_is_left_to_the_reading() -> None:
    class Gone:
        def is_dir(self, *, follow_symlinks: bool) -> bool:
            raise OSError

    assert not cache_module._is_directory(Gone())  # type: ignore[arg-type]
