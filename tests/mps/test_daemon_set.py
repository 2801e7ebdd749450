"""The DaemonSet of ``kerf mps-daemons`` fits the program and the backend, and no update of it ends daemons."""

from pathlib import Path

import click
import yaml

from kerf_dra.driver.cli.daemons.mps_daemons import command

MANIFEST = Path(__file__).parents[2] / "deploy" / "nvidia" / "mps-daemons.yaml"
(DAEMON_SET,) = yaml.safe_load_all(MANIFEST.read_text())
POD = DAEMON_SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
FOLDER = "/run/kerf/sharing"


def test_an_update_leaves_daemons_alone_until_their_pod_is_deleted() -> None:
    assert DAEMON_SET["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_the_arguments_are_those_of_the_program() -> None:
    name, *arguments = CONTAINER["args"]
    assert name == "mps-daemons"
    with click.Context(command) as context:
        values = command.make_parser(context).parse_args(list(arguments))[0]
    assert {"folder", "driver_root", "shared_memory"} == values.keys()


def test_daemons_below_the_drivers_root_see_the_folder_and_its_shared_memory_under_the_same_paths() -> None:
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in POD["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in CONTAINER["volumeMounts"]}
    assert mounts == {
        "/driver-root": "/",
        FOLDER: FOLDER,
        f"/driver-root{FOLDER}": FOLDER,
        "/dev/shm": "/dev/shm/kerf-mps",
        "/driver-root/dev/shm": "/dev/shm/kerf-mps",
    }


def test_its_pod_has_no_rights_in_the_cluster() -> None:
    assert POD["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in POD
