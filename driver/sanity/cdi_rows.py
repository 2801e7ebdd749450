"""Rows about the CDI names in answers, and the files behind them (SPEC.md of the Container Device Interface)."""

from typing import Final

from kerf_dra import cdi
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.folder_changes import watching
from kerf_dra.driver.sanity.rows import Level, NotTriedError, Row

_SPEC: Final = "CDI SPEC.md"
_READ: Final = (".json", ".yaml")
"""The extensions of files that runtimes read."""


async def _check_qualified(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim], driver.prepared(claim) as outcome:
        return next(
            (wrong for device in outcome.devices for name in device.cdi_ids if (wrong := _find_mistake(name))), ""
        )


def _find_mistake(name: str) -> str:
    """Return what is wrong with a qualified name; empty: nothing is."""
    try:
        cdi.QualifiedName.parse(name)
    except cdi.InvalidNameError as error:
        return f"{name!r} is no qualified name: {error}"
    return ""


async def _check_resolves(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim], driver.prepared(claim) as outcome:
        names = [each for device in outcome.devices for each in device.cdi_ids if not _find_mistake(each)]
        if not names:
            raise NotTriedError("its devices have no CDI names")
        catalog = driver.load_cdi_catalog()
        missing = next((name for name in names if name not in catalog.devices), None)
    return f"{missing}: {catalog.why_missing(missing)}" if missing else ""


async def _check_valid(driver: DriverUnderTest) -> str:
    before = driver.read_cdi_files()
    async with driver.claims.allocated() as [claim], driver.prepared(claim):
        catalog = driver.load_cdi_catalog()
        written = {path for path, data in driver.read_cdi_files().items() if before.get(path) != data}
        problems = [f"{path}: {texts[0]}" for path, texts in catalog.errors.items() if path in written]
    return problems[0] if problems else ""


async def _check_removed(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [first], driver.prepared(first):
        pass  # a driver may keep files that are of no claim
    before = set(driver.read_cdi_files())
    async with driver.claims.allocated() as [second], driver.prepared(second):
        pass
    left = [path.name for path in driver.read_cdi_files() if path not in before or first.uid in path.name]
    return f"{', '.join(left)} is there after the claim's unprepare" if left else ""


async def _check_foreign(driver: DriverUnderTest) -> str:
    folder = next((each for each in driver.cdi_folders if each.is_dir()), None)
    if folder is None:
        raise NotTriedError("there is no CDI folder")
    foreign = folder / "kerf-sanity.example.com-device.json"
    content = (
        b'{"cdiVersion": "0.3.0", "kind": "kerf-sanity.example.com/device", "devices": '
        b'[{"name": "a", "containerEdits": {"env": ["KERF_SANITY=1"]}}]}'
    )
    foreign.write_bytes(content)
    try:
        async with driver.claims.allocated() as [claim], driver.prepared(claim):
            pass
        found = driver.read_cdi_files().get(foreign)
    finally:
        foreign.unlink(missing_ok=True)
    if found == content:
        return ""
    return f"{foreign.name} of another vendor is {'gone' if found is None else 'not as it was'}"


async def _check_lowest_version(driver: DriverUnderTest) -> str:
    before = driver.read_cdi_files()
    async with driver.claims.allocated() as [claim], driver.prepared(claim):
        files = driver.load_cdi_catalog().files
        written = [each for each in files if before.get(each.path) != driver.read_cdi_files().get(each.path)]
    for file in written:
        if file.spec is not None and file.spec.version is not None:
            lowest = cdi.minimum_version(file.spec).version
            if cdi.VERSIONS.index(file.spec.version) > cdi.VERSIONS.index(lowest):
                return f"{file.path.name} says cdiVersion {file.spec.version}; what it has is in {lowest}"
    return ""


async def _check_atomic(driver: DriverUnderTest) -> str:
    folders = [folder for folder in driver.cdi_folders if folder.is_dir()]
    if not folders:
        raise NotTriedError("there is no CDI folder")
    with watching(folders) as modified:
        async with driver.claims.allocated() as [claim], driver.prepared(claim):
            pass
        written = sorted(name for name in modified.names() if name.endswith(_READ) and not name.startswith("."))
    return f"{', '.join(written)} was written in place" if written else ""


ROWS: Final = (
    Row(
        id="CDI-1",
        level=Level.MUST,
        tries="the CDI names of a prepared claim",
        source=f"{_SPEC}: qualified device names; the kubelet passes them to the runtime as they are",
        remedy="name devices VENDOR/CLASS=NAME",
        check=_check_qualified,
    ),
    Row(
        id="CDI-2",
        level=Level.MUST,
        tries="the devices of these names in the CDI folders",
        source=f"{_SPEC}: a runtime refuses a container with a name that it cannot resolve",
        remedy="write the CDI file before the answer, into a folder that the runtime reads",
        check=_check_resolves,
    ),
    Row(
        id="CDI-3",
        level=Level.MUST,
        tries="the CDI files that a prepare writes",
        source=f"{_SPEC}; runtimes ignore invalid files",
        remedy="write valid files: `kerf cdi validate` names each mistake",
        check=_check_valid,
    ),
    Row(
        id="CDI-4",
        level=Level.SHOULD,
        tries="the CDI folders after a claim was prepared and unprepared",
        source="kubeletplugin: files of claims are removed with them",
        remedy="remove the files of a claim when it is unprepared",
        check=_check_removed,
    ),
    Row(
        id="CDI-5",
        level=Level.MUST,
        tries="a CDI file of another vendor while a claim is prepared and unprepared",
        source=f"{_SPEC}: files are their vendors'",
        remedy="touch no file but the driver's own",
        check=_check_foreign,
    ),
    Row(
        id="CDI-6",
        level=Level.SHOULD,
        tries="the version that the CDI files of a claim say",
        source="the Go library for CDI: MinimumRequiredVersion; runtimes ignore files of versions they do not know",
        remedy="say the lowest version that the content needs: `kerf cdi validate` names it",
        check=_check_lowest_version,
    ),
    Row(
        id="CDI-7",
        level=Level.SHOULD,
        tries="how the CDI files of a claim are written",
        source="the Go library for CDI writes to a temporary file, and renames it",
        remedy="write to a file of another extension in the same folder, then rename it: runtimes read at any moment",
        check=_check_atomic,
    ),
)
