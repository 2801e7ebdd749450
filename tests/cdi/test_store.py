"""Spec files on disk: what stands there after success, after failure, and after a crash at any step."""

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kerf_dra.cdi import (
    Cache,
    ContainerEdits,
    Device,
    InvalidSpecError,
    Kind,
    Spec,
    Store,
    StoreError,
    encode_json,
    load,
    transient_name,
)
from kerf_dra.cdi.store import STALE_AFTER_S, Filesystem, VolatileFilesystem

KIND = Kind(vendor="acme.io", class_name="widget")
NAME = transient_name(KIND, "claim-1")


def spec(value: str) -> Spec:
    return Spec(kind=KIND, devices=(Device(name="w", container_edits=ContainerEdits(env=(f"A={value}",))),))


OLD, NEW = spec("old"), spec("new")


def test_without_syncs_readers_see_whole_files_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    store = Store(tmp_path, VolatileFilesystem())
    assert store.write(NAME, OLD)
    assert store.write(NAME, NEW)
    assert store.path(NAME).read_bytes() == encode_json(NEW)
    assert [path.name for path in tmp_path.iterdir()] == [store.path(NAME).name]
    assert store.remove(NAME)
    assert not synced


def test_a_file_and_its_name_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    store = Store(tmp_path)
    assert store.write(NAME, OLD)
    content, folder = synced
    assert (content.parent, folder) == (tmp_path, tmp_path)


class Recording(Filesystem):
    """A file system that records each step."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _step(self, name: str) -> None:
        self.calls.append(name)

    def create(self, path: Path) -> int:
        self._step("create")
        return super().create(path)

    def write(self, descriptor: int, content: bytes) -> None:
        self._step("write")
        super().write(descriptor, content[: len(content) // 2])
        self._step("write")
        super().write(descriptor, content[len(content) // 2 :])

    def make_readable(self, descriptor: int, mode: int) -> None:
        self._step("make_readable")
        super().make_readable(descriptor, mode)

    def sync(self, descriptor: int) -> None:
        self._step("sync")
        super().sync(descriptor)

    def close(self, descriptor: int) -> None:
        # The kernel closes what a dead process had open.
        super().close(descriptor)
        self._step("close")

    def rename(self, source: Path, target: Path) -> None:
        self._step("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._step("unlink")
        super().unlink(path)

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory")
        super().sync_directory(path)


class Failing(Recording):
    """One step fails, as when the disk is full."""

    def __init__(self, step: int, error: int = errno.ENOSPC) -> None:
        super().__init__()
        self._failing = step
        self._error = error

    def _step(self, name: str) -> None:
        super()._step(name)
        if len(self.calls) == self._failing + 1:
            raise OSError(self._error, os.strerror(self._error))


class KilledError(BaseException):
    """The process was killed; none of its clean-up runs."""


class Dying(Recording):
    """At one step the process is killed: that step and all after it do nothing."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._last = step

    def _step(self, name: str) -> None:
        if len(self.calls) >= self._last:
            raise KilledError
        super()._step(name)


def steps_of(action: Callable[[Store], object], prepare: Callable[[Path], object], tmp_path: Path) -> list[str]:
    prepare(tmp_path / "counted")
    recording = Recording()
    action(Store(tmp_path / "counted", recording))
    return recording.calls


def visible(directory: Path) -> dict[str, bytes]:
    """Return the files that a reader of the directory reads."""
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.suffix in (".json", ".yaml")}


def test_a_written_file_is_there_whole_readable_by_all_and_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "run" / "cdi")
    mask = os.umask(0o077)
    try:
        assert store.write(NAME, OLD)
    finally:
        os.umask(mask)
    file = tmp_path / "run" / "cdi" / f"{NAME}.json"
    assert load(file.read_bytes()) == load(encode_json(OLD))
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_equal_content_is_not_written_again(tmp_path: Path) -> None:
    recording = Recording()
    store = Store(tmp_path, recording)
    assert store.write(NAME, OLD)
    before = store.path(NAME).stat()
    recording.calls.clear()
    assert not store.write(NAME, OLD)
    assert store.path(NAME).stat() == before
    assert recording.calls == ["sync_directory"]


@pytest.mark.parametrize("spoil", ["mode", "content", "length", "link", "empty directory"])
def test_a_file_that_is_not_as_written_is_written_again(tmp_path: Path, spoil: str) -> None:
    store = Store(tmp_path)
    store.write(NAME, OLD)
    path = store.path(NAME)
    match spoil:
        case "mode":
            path.chmod(0o600)
        case "content":
            path.write_bytes(path.read_bytes().replace(b"old", b"odd"))
        case "length":
            path.write_bytes(b"")
        case "link":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "empty directory":
            path.unlink()
            path.mkdir()
    assert store.write(NAME, OLD)
    assert path.read_bytes() == encode_json(OLD)
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_the_content_is_on_disk_before_it_has_a_name_and_the_name_before_we_return(tmp_path: Path) -> None:
    recording = Recording()
    Store(tmp_path, recording).write(NAME, OLD)
    assert recording.calls == [
        "create",
        "write",
        "write",
        "make_readable",
        "sync",
        "close",
        "rename",
        "sync_directory",
    ]


def test_files_are_removed_once(tmp_path: Path) -> None:
    recording = Recording()
    store = Store(tmp_path, recording)
    store.write(NAME, OLD)
    recording.calls.clear()
    assert store.remove(NAME)
    assert recording.calls == ["unlink", "sync_directory"]
    assert not store.remove(NAME)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_in_the_place_of_a_file_is_removed_with_it(tmp_path: Path) -> None:
    """Its claim could not be unprepared, so its pod was Terminating for ever."""
    (tmp_path / f"{NAME}.json").mkdir()
    assert not Store(tmp_path).remove(NAME)
    assert list(tmp_path.iterdir()) == []


def test_names_are_those_of_this_stores_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.names() == []
    for name in ("acme.io-widget_b", "acme.io-widget_a", "other.io-widget_a"):
        store.write(name, OLD)
    for stranger in ("acme.io-widget_c.yaml", ".acme.io-widget_d.json", "acme.io-widget_e.json.tmp", "näme.json"):
        (tmp_path / stranger).touch()
    assert store.names() == ["acme.io-widget_a", "acme.io-widget_b", "other.io-widget_a"]
    assert store.names("acme.io-widget_") == ["acme.io-widget_a", "acme.io-widget_b"]


def test_names_of_a_directory_that_is_not_there_are_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert store.names() == []
    assert store.sweep() == []
    assert not store.remove(NAME)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\0b", "a\n", "ä", "-x", "x" * 201, "x.json", "x.yaml"],
)
def test_a_name_that_is_no_file_name_of_ours_is_refused(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path)
    for action in (lambda: store.write(name, OLD), lambda: store.remove(name), lambda: store.path(name)):
        with pytest.raises(StoreError, match="cannot name a spec file; use 1 to 200"):
            action()
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_fits(tmp_path: Path) -> None:
    assert Store(tmp_path).write("x" * 200, OLD)


def test_an_invalid_spec_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(NAME, OLD)
    with pytest.raises(InvalidSpecError):
        store.write(NAME, Spec(kind=KIND, devices=()))
    assert visible(tmp_path) == {f"{NAME}.json": encode_json(OLD)}


def test_a_failure_at_any_step_leaves_the_old_or_the_new_and_nothing_else(tmp_path: Path) -> None:
    steps = steps_of(lambda store: store.write(NAME, NEW), lambda path: Store(path).write(NAME, OLD), tmp_path)
    for step, name in enumerate(steps):
        directory = tmp_path / str(step)
        Store(directory).write(NAME, OLD)
        with pytest.raises(StoreError) as caught:
            Store(directory, Failing(step)).write(NAME, NEW)
        assert str(directory / f"{NAME}.json") in str(caught.value)
        assert "free space" in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError)
        expected = NEW if name == "sync_directory" else OLD
        assert {file.name: file.read_bytes() for file in directory.iterdir()} == {f"{NAME}.json": encode_json(expected)}
        assert Store(directory).write(NAME, NEW) is (expected is OLD)


def test_being_killed_at_any_step_leaves_readers_the_old_or_the_new(tmp_path: Path) -> None:
    steps = steps_of(lambda store: store.write(NAME, NEW), lambda path: Store(path).write(NAME, OLD), tmp_path)
    for step in range(len(steps) + 1):
        directory = tmp_path / str(step)
        Store(directory).write(NAME, OLD)
        filesystem = Dying(step)
        if step < len(steps):
            with pytest.raises(KilledError):
                Store(directory, filesystem).write(NAME, NEW)
        else:
            Store(directory, filesystem).write(NAME, NEW)
        seen = visible(directory)
        assert seen in ({f"{NAME}.json": encode_json(OLD)}, {f"{NAME}.json": encode_json(NEW)}), steps[:step]
        later = (directory / f"{NAME}.json").stat().st_mtime + 2 * STALE_AFTER_S
        Store(directory).sweep(now=lambda at=later: at)  # type: ignore[misc]
        assert set(visible(directory)) == {file.name for file in directory.iterdir()}
        Store(directory).write(NAME, NEW)
        assert visible(directory) == {f"{NAME}.json": encode_json(NEW)}


def test_a_killed_process_leaves_readers_nothing_half_written(tmp_path: Path) -> None:
    """The same with a real process that really dies, between each two calls of its system."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.cdi.test_store import NAME, NEW, OLD, Recording\n"
        "from cdi import Store\n"
        "class Suicidal(Recording):\n"
        "    def _step(self, name):\n"
        "        super()._step(name)\n"
        "        if len(self.calls) > step: os.kill(os.getpid(), 9)\n"
        "for step in range(8):\n"
        "    directory = Path(sys.argv[1]) / str(step)\n"
        "    Store(directory).write(NAME, OLD)\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        Store(directory, Suicidal()).write(NAME, NEW)\n"
        "        os._exit(0)\n"
        "    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=240)
    for directory in tmp_path.iterdir():
        expected = NEW if directory.name == "7" else OLD
        assert visible(directory) == {f"{NAME}.json": encode_json(expected)}
        assert Cache([directory]).catalog.errors == {}


def test_a_failed_removal_says_so(tmp_path: Path) -> None:
    Store(tmp_path).write(NAME, OLD)
    with pytest.raises(StoreError, match="could not be removed: Read-only file system; mount the directory writable"):
        Store(tmp_path, Failing(0, errno.EROFS)).remove(NAME)
    assert NAME in Store(tmp_path).names()


def test_only_old_temporary_files_of_ours_are_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(NAME, OLD)
    ours = [".acme.io-widget_1.json.0123456789abcdef.tmp", ".other.io-widget.json.0123456789abcdef.tmp"]
    others = ["spec.123.tmp", ".acme.io-widget_1.json.tmp", ".acme.io-widget_1.json.swp", ".x.json"]
    for name in (*ours, *others):
        (tmp_path / name).touch()
    (tmp_path / ".dir.json.0123456789abcdef.tmp").mkdir()
    written = (tmp_path / ours[0]).stat().st_mtime
    assert store.sweep(now=lambda: written + STALE_AFTER_S / 2) == []
    assert store.sweep("acme.io", now=lambda: written + STALE_AFTER_S + 5) == [tmp_path / ours[0]]
    assert store.sweep(now=lambda: written + STALE_AFTER_S + 5) == [tmp_path / ours[1]]
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {f"{NAME}.json", *others, ".dir.json.0123456789abcdef.tmp"}


def test_sweeping_yields_to_a_writer_that_was_only_slow(tmp_path: Path) -> None:
    class Raced(Filesystem):
        def unlink(self, path: Path) -> None:
            super().unlink(path)
            super().unlink(path)

    temporary = tmp_path / ".x.json.0123456789abcdef.tmp"
    temporary.touch()
    later = temporary.stat().st_mtime + STALE_AFTER_S + 5
    assert Store(tmp_path, Raced()).sweep(now=lambda: later) == [temporary]
    temporary.touch()
    with pytest.raises(StoreError, match="could not be removed"):
        Store(tmp_path, Failing(0)).sweep(now=lambda: later)


def test_a_file_that_goes_away_while_sweeping_is_no_error(tmp_path: Path) -> None:
    temporary = tmp_path / ".x.json.0123456789abcdef.tmp"
    temporary.touch()

    def now() -> float:
        temporary.unlink()
        return 0.0

    assert Store(tmp_path).sweep(now=now) == []


def test_a_temporary_file_that_cannot_be_looked_at_is_told_and_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, *others = [tmp_path / f".{name}.json.0123456789abcdef.tmp" for name in "abc"]
    for path in (broken, *others):
        path.touch()
    later = broken.stat().st_mtime + STALE_AFTER_S + 5
    look = Path.lstat

    def fail(path: Path) -> os.stat_result:
        if path == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return look(path)

    monkeypatch.setattr(Path, "lstat", fail)
    with pytest.raises(StoreError, match=f"{broken}: could not be read: Input/output error"):
        Store(tmp_path).sweep(now=lambda: later)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [broken]


@pytest.mark.parametrize("place", ["file", "under a file"])
def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "cdi").touch()
    store = Store(tmp_path / "cdi" / ("deeper" if place == "under a file" else ""))
    for action in (lambda: store.write(NAME, OLD), lambda: store.names(), lambda: store.remove(NAME)):
        with pytest.raises(StoreError, match="a file stands where a directory is needed; remove it"):
            action()


def test_a_directory_in_the_place_of_the_file_is_named_and_kept(tmp_path: Path) -> None:
    theirs = tmp_path / f"{NAME}.json" / "theirs"
    theirs.mkdir(parents=True)
    with pytest.raises(StoreError, match="a directory has the file's name; remove it"):
        Store(tmp_path).write(NAME, OLD)
    with pytest.raises(StoreError, match="a directory has the file's name; remove it"):
        Store(tmp_path).remove(NAME)
    assert theirs.is_dir()


def test_a_directory_deleted_under_us_is_named(tmp_path: Path) -> None:
    class Deleting(Filesystem):
        def create(self, path: Path) -> int:
            path.parent.rmdir()
            return super().create(path)

    with pytest.raises(StoreError, match="the directory was deleted, maybe under a mount"):
        Store(tmp_path / "cdi", Deleting()).write(NAME, OLD)


def test_readers_never_see_part_of_a_file(tmp_path: Path) -> None:
    store, specs = Store(tmp_path), [spec("x" * size) for size in (1, 100_000)]
    store.write(NAME, specs[0])
    contents, done, seen = {encode_json(one) for one in specs}, threading.Event(), []

    def reading() -> None:
        while not done.is_set():
            seen.append(store.path(NAME).read_bytes() in contents)

    reader = threading.Thread(target=reading)
    reader.start()
    for number in range(60):
        store.write(NAME, specs[number % 2])
    done.set()
    reader.join()
    assert seen
    assert all(seen)
