"""What the demo draws of cards that are published."""

from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.demo.observation import CardState, build_card_states
from kerf_dra.driver.demo.report import ClaimReport, DeviceReport, PodReport
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, compile_pool
from tests.partitions.cards import fpga, vocabulary_of
from tests.partitions.layouts import divided


def draw(*held: str) -> CardState:
    """The card of quarters or halves, of which one pod holds these devices."""
    card = fpga(divided(4, 2))
    pool = compile_pool("n/fpga", "n", [card], vocabulary=vocabulary_of(card), layout=SliceLayout.SPLIT).pool
    slices = [
        ResourceSlice(
            metadata=ObjectMeta(name=f"{number}"),
            spec=ResourceSliceSpec(
                driver="fpga.kerf.dev",
                pool=ResourcePool(name="n/fpga", generation=1, resource_slice_count=len(pool.slices)),
                node_name="n",
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for number, content in enumerate(pool.slices)
    ]
    devices = tuple(
        DeviceReport(
            request="r",
            driver="fpga.kerf.dev",
            pool="n/fpga",
            device=name,
            profile=None,
            memory_bytes=None,
            card=card.uuid,
        )
        for name in held
    )
    pod = PodReport(
        namespace="default",
        name="p",
        node="n",
        phase="Running",
        claims=(ClaimReport(name="c", uid="u", devices=devices, cdi_ids=()),),
    )
    [state] = build_card_states(slices, [pod])
    return state


def test_a_card_is_drawn_with_the_layout_in_use_or_else_with_the_largest() -> None:
    quarter, half = "n/fpga/fpga-0-slot-2", "n/fpga/fpga-0-slot-1-of-halves"
    assert (draw().unit, draw().units) == ("slot", ("", "", "", ""))
    assert (draw("fpga-0-slot-2").unit, draw("fpga-0-slot-2").units) == ("slot", ("", "", quarter, ""))
    state = draw("fpga-0-slot-1-of-halves")
    assert (state.unit, state.units) == ("halves slot", ("", half))
