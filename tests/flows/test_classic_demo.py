"""`kerf demo --classic` as its users run it: all steps, and nothing left."""

from click.testing import CliRunner

from driver.cli.demo import command


def test_the_classic_story_is_told_to_its_end_and_leaves_nothing() -> None:
    result = CliRunner().invoke(command, ["--classic", "--nodes", "1"], standalone_mode=False)
    assert result.return_value == 0, result.output
    for line in (
        "gpu-0-1g-20gb",
        "fpga-0-aes-gcm-at-",
        "two pods use a claim whose class allows two (maxPods); a third waits",
        "one of them is deleted, and the third runs",
        "the successor has allocated it",
        "every claim was deallocated first",
        "nothing is left: no partition, no CDI file, no record",
    ):
        assert line in result.output
