"""A checkpoint that was damaged after its process was killed: every claim is known at the next start, or none is lost.

The files are those that a killed process leaves: a database, its log with the last writes, and the digest. Damage is
refused, or it is where it means nothing; a start that knows less than was written would leak partitions.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from kerf_dra.api.checkpoint.v1 import CheckpointError, ContentSummary
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.checkpoint import checkpoint_digest
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import FILE_NAME, Checkpoint, open_checkpoint
from tests.kubeletplugin.records import BOOT, device, record
from tests.runtime.memory_folder import memory_folder

LOG = f"{FILE_NAME}-wal"
INDEX = f"{FILE_NAME}-shm"
DIGEST = checkpoint_digest.FILE_NAME
STRIDE = 251
"""Every so many bytes one is damaged in a usual run: a prime, so that it falls on all fields of pages and frames."""

Files = Mapping[str, bytes]
Content = tuple[Mapping[str, PreparedClaim], Mapping[str, object]]


def notes_of(checkpoint: Checkpoint) -> dict[str, object]:
    return {uid: dict(checkpoint.journal(uid, device().share, BOOT).notes) for uid in checkpoint.records}


def content_of(directory: Path, boot_id: str = BOOT) -> Content:
    with open_checkpoint(directory, boot_id=boot_id) as checkpoint:
        return dict(checkpoint.records), notes_of(checkpoint)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: each start syncs its files."""
    with memory_folder() as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Content]:
    """What a process leaves that was killed with three claims, and what it knew."""
    directory = tmp_path_factory.mktemp("killed")
    with open_checkpoint(directory, boot_id=BOOT) as checkpoint:
        for name in ("one", "two", "three"):
            checkpoint.put(record(name, state=ClaimState.STARTED))
            checkpoint.journal(f"uid-of-{name}", device().share, BOOT).write(before=[])
            if name == "one":  # the database has this one, the log the others
                checkpoint._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            checkpoint.put(record(name))
        checkpoint.drop("uid-of-two")
        files = {name: (directory / name).read_bytes() for name in (FILE_NAME, LOG, INDEX, DIGEST)}
        return files, (dict(checkpoint.records), notes_of(checkpoint))


@pytest.fixture(scope="module")
def ended(killed: tuple[Files, Content], tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Content]:
    """The same of a process that ended in order: there is no log, and every page of the database counts."""
    directory = tmp_path_factory.mktemp("ended")
    assert start(directory, killed[0]) == killed[1]
    return {name: (directory / name).read_bytes() for name in (FILE_NAME, DIGEST)}, killed[1]


@pytest.fixture
def left(request: pytest.FixtureRequest, name: str) -> tuple[Files, Content]:
    """What a process left for which the file ``name`` counts."""
    files: tuple[Files, Content] = request.getfixturevalue("ended" if name == FILE_NAME else "killed")
    return files


def start(directory: Path, files: Files, boot_id: str = BOOT) -> Content | CheckpointError:
    """Return what a process finds that starts with these files."""
    for name in (FILE_NAME, LOG, INDEX, DIGEST):
        if name in files:
            (directory / name).write_bytes(files[name])
        else:
            (directory / name).unlink(missing_ok=True)
    try:
        return content_of(directory, boot_id)
    except CheckpointError as error:
        return error


def assert_nothing_is_lost(directory: Path, files: Files, expected: Content, what: str) -> bool:
    """Returns whether the damage was refused."""
    found = start(directory, files)
    if isinstance(found, CheckpointError):
        assert str(directory) in str(found)
        return True
    assert found == expected, what
    return False


def flip_all(directory: Path, killed: tuple[Files, Content], name: str, stride: int) -> None:
    files, expected = killed
    refused = 0
    for at in range(0, len(files[name]), stride):
        damaged = bytearray(files[name])
        damaged[at] ^= 1 << (at // stride % 8)
        refused += assert_nothing_is_lost(
            directory, {**files, name: bytes(damaged)}, expected, f"byte {at} of {name} was flipped"
        )
    assert (refused > 0) == (name != INDEX), "SQLite makes the index anew; damage of the others is noticed"


def shorten_all(directory: Path, killed: tuple[Files, Content], name: str, stride: int) -> None:
    files, expected = killed
    for size in range(0, len(files[name]), stride):
        damaged = {**files, name: files[name][:size]}
        assert_nothing_is_lost(directory, damaged, expected, f"{name} was cut to {size} bytes")


@pytest.mark.parametrize("name", [FILE_NAME, LOG, INDEX])
def test_a_flipped_bit_loses_no_claim(name: str, tmp_path: Path, left: tuple[Files, Content]) -> None:
    flip_all(tmp_path, left, name, STRIDE)


@pytest.mark.parametrize("name", [FILE_NAME, LOG, INDEX])
def test_a_shortened_file_loses_no_claim(name: str, tmp_path: Path, left: tuple[Files, Content]) -> None:
    shorten_all(tmp_path, left, name, STRIDE * 7)


@pytest.mark.parametrize("damage", [flip_all, shorten_all])
def test_the_digest_itself_may_not_be_damaged(
    damage: Callable[[Path, tuple[Files, Content], str, int], None], tmp_path: Path, killed: tuple[Files, Content]
) -> None:
    damage(tmp_path, killed, DIGEST, 7)


@pytest.mark.long
@pytest.mark.parametrize("damage", [flip_all, shorten_all])
@pytest.mark.parametrize("name", [FILE_NAME, LOG, DIGEST])
def test_every_byte_of_every_file_counts(
    damage: Callable[[Path, tuple[Files, Content], str, int], None],
    name: str,
    tmp_path: Path,
    left: tuple[Files, Content],
) -> None:
    damage(tmp_path, left, name, 1)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ([LOG], r"checkpoint.db: damaged: it has 1 claims, and 2 were written since the node was booted; restore"),
        ([LOG, INDEX], r"checkpoint.db: damaged: it has 1 claims, and 2 were written"),
        ([FILE_NAME], r"checkpoint.db: it is missing though its log checkpoint.db-wal is there"),
        (
            [FILE_NAME, LOG, INDEX],
            r"checkpoint.db: it is missing, and 2 claims were written since the node was",
        ),
        (
            [DIGEST],
            r"checkpoint.digest: it is missing, so it cannot be checked whether the checkpoint .* is complete; restore",
        ),
    ],
    ids=["log", "log and index", "database", "all but the digest", "digest"],
)
def test_a_deleted_file_is_told(gone: list[str], message: str, tmp_path: Path, killed: tuple[Files, Content]) -> None:
    found = start(tmp_path, {name: data for name, data in killed[0].items() if name not in gone})
    with pytest.raises(CheckpointError, match=message):
        raise found if isinstance(found, CheckpointError) else AssertionError(found)


def test_an_emptied_folder_is_no_new_node_while_claims_have_cdi_files(tmp_path: Path) -> None:
    left = tmp_path / "cdi/k8s.gpu.kerf.dev-claim_uid-1.json"
    with (
        pytest.raises(CheckpointError, match=r"it is missing though 1 claims are prepared: there is .*uid-1.json; res"),
        open_checkpoint(tmp_path, boot_id=BOOT, find_cdi_files=lambda: [left]),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_older_copy_of_the_database_is_no_checkpoint_of_now(tmp_path: Path, killed: tuple[Files, Content]) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one"))
    older = (tmp_path / FILE_NAME).read_bytes()
    found = start(tmp_path, {FILE_NAME: older, DIGEST: killed[0][DIGEST]})
    assert "it has 1 claims, and 2 were written" in str(found)


def test_changed_content_with_as_many_claims_is_told(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one", state=ClaimState.STARTED))
        older = (tmp_path / FILE_NAME).read_bytes(), (tmp_path / LOG).read_bytes()
        checkpoint.put(record("one"))
    digest = (tmp_path / DIGEST).read_bytes()
    found = start(tmp_path, {FILE_NAME: older[0], LOG: older[1], DIGEST: digest})
    assert "damaged: records or notes of its 1 claims are not those that were written" in str(found)


@pytest.mark.parametrize("gone", [[LOG, INDEX], [FILE_NAME, LOG, INDEX]], ids=["log", "database"])
def test_after_a_power_cut_what_was_not_synced_may_be_missing(
    gone: list[str], tmp_path: Path, killed: tuple[Files, Content]
) -> None:
    """Nothing that an earlier boot has recorded is on the hardware."""
    files, (records, _) = killed
    found = start(tmp_path, {name: data for name, data in files.items() if name not in gone}, "boot-2")
    assert not isinstance(found, CheckpointError), found
    assert found[0].keys() < records.keys()
    assert content_of(tmp_path, "boot-2")[0] == found[0]


def test_a_process_killed_between_the_digest_and_the_database_starts_again(tmp_path: Path) -> None:
    """Whether the record of a write that was answered to nobody is there or not: both are whole."""
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one"))
        before = {name: (tmp_path / name).read_bytes() for name in (FILE_NAME, LOG)}
        pending: list[bytes] = []

        def be_killed(content: ContentSummary) -> None:
            del content
            pending.append((tmp_path / DIGEST).read_bytes())

        checkpoint._digest_file.finish_write = be_killed  # type: ignore[method-assign]
        checkpoint.put(record("two"))
        after = {name: (tmp_path / name).read_bytes() for name in (FILE_NAME, LOG)}
    for files, uids in ((before, {"uid-of-one"}), (after, {"uid-of-one", "uid-of-two"})):
        found = start(tmp_path, {**files, DIGEST: pending[0]})
        assert not isinstance(found, CheckpointError), found
        assert found[0].keys() == uids


@pytest.mark.parametrize(
    ("has_database", "message"),
    [
        (True, r"checkpoint.db: damaged: it has 0 claims, and 1 or 2 were written since the node was booted"),
        (False, r"checkpoint.db: it is missing, and 1 or 2 claims were written since the node was booted"),
    ],
    ids=["an older database", "no database"],
)
def test_a_process_killed_between_the_digest_and_the_database_says_both_numbers_of_what_is_lost(
    has_database: bool, message: str, tmp_path: Path
) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        empty = (tmp_path / FILE_NAME).read_bytes()
        checkpoint.put(record("one"))
        checkpoint._digest_file.finish_write = lambda content: None  # type: ignore[method-assign]
        checkpoint.put(record("two"))
        digest = (tmp_path / DIGEST).read_bytes()
    found = start(tmp_path, {DIGEST: digest, **({FILE_NAME: empty} if has_database else {})})
    with pytest.raises(CheckpointError, match=message):
        raise found if isinstance(found, CheckpointError) else AssertionError(found)


def test_a_write_is_made_though_its_digest_cannot_be_finished_nor_its_file_closed(tmp_path: Path) -> None:
    """The digest of both contents, before and after, stands: one of them it is."""
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        file = checkpoint._digest_file
        write = file.write

        def fail_to_finish(*contents: ContentSummary) -> None:
            if len(contents) == 1:
                raise OSError(errno.EIO, "Input/output error")
            write(*contents)

        file.write = fail_to_finish  # type: ignore[method-assign]
        checkpoint.put(record("one"))
        checkpoint.put(record("two"))
        os.close(file._descriptor)
    assert content_of(tmp_path)[0].keys() == {"uid-of-one", "uid-of-two"}


def test_a_write_whose_digest_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one"))
        descriptor = checkpoint._digest_file._descriptor
        checkpoint._digest_file._descriptor = os.open(tmp_path / DIGEST, os.O_RDONLY)
        with pytest.raises(CheckpointError, match=r"cannot be written: .*Bad file descriptor"):
            checkpoint.put(record("two"))
        os.close(checkpoint._digest_file._descriptor)
        checkpoint._digest_file._descriptor = descriptor
    assert content_of(tmp_path)[0].keys() == {"uid-of-one"}


def test_a_first_start_that_was_interrupted_anywhere_is_a_first_start(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT):
        pass
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for left in ([], [DIGEST], [FILE_NAME, DIGEST]):
        directory = tmp_path / "-".join(["left", *left])
        directory.mkdir()
        for name in left:
            shutil.copy(tmp_path / name, directory)
        with suppress(FileNotFoundError):
            (directory / f"{DIGEST}.new").write_bytes(whole[DIGEST][:100])
        assert content_of(directory) == ({}, {})
