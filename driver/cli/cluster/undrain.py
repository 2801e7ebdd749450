"""``kerf undrain``: ends the maintenance of a card, which then gets claims again."""

from collections.abc import Sequence
from pathlib import Path

import click

from kerf_dra.api.kerf.card_maintenance import CardMaintenanceObject
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.cluster.card_maintenances import (
    CardArgument,
    NodeCardParameter,
    delete_maintenances,
    list_maintenances_of,
    name_maintenances,
    read_input,
)
from kerf_dra.driver.cli.options.cluster import access_options, with_exit_codes
from kerf_dra.driver.cli.output import OutputFormat, output_formats, print_document, print_text, wrap_sentence
from kerf_dra.driver.diagnostics.drain.report import find_drained_card
from kerf_dra.driver.diagnostics.errors import QueryError


@click.command(short_help="End the maintenance of a card: it gets claims again.")
@click.argument("card", type=NodeCardParameter(), metavar="NODE/CARD")
@access_options
@output_formats("text", "json", "yaml")
@with_exit_codes
def command(card: CardArgument, kubeconfig: Path | None, context: str | None, output: OutputFormat) -> int:
    """End the maintenance of a card: delete its CardMaintenances; the node then removes the taint.

    CARD is the card's name, such as gpu-0, its UUID or its PCI address; of a card that is no longer published what the
    CardMaintenance has.

    Exit code 0: done; 2: the card is in no maintenance, or other bad input; 3: no answer.
    """
    known = event_loop.run(read_input, kubeconfig, context)
    try:
        target = find_drained_card(known.build_index(), card.node, card.card)
        uuid, address = target.uuid, target.pci_bus_id
    except QueryError:  # it may have gone, or its whole node
        uuid, address = card.card, card.card
    found = list_maintenances_of(known.maintenances, card.node, uuid, address)
    if not found:
        others = _list_others(known.maintenances)
        raise QueryError(f"no CardMaintenance is for card {card.card} of node {card.node}; {others}")
    event_loop.run(delete_maintenances, kubeconfig, context, found)
    names = [each.metadata.name for each in found]
    if output == "text":
        text = f"card {card.card} of {card.node} gets claims again; deleted: {name_maintenances(names)}"
        print_text("\n".join(wrap_sentence(text)))
    else:
        print_document({"node": card.node, "card": card.card, "deleted": names}, output)
    return 0


def _list_others(maintenances: Sequence[CardMaintenanceObject]) -> str:
    others = [f"{each.spec.get('nodeName')}/{each.spec.get('card')}" for each in maintenances]
    return f"there are those of {list_names(others)}" if others else "there is none of any card"
