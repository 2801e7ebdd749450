"""What ``kerf why`` says of a pod or a claim, as HTML."""

from collections.abc import Iterator
from typing import Final

from kerf_dra.api.model.names import list_names
from kerf_dra.driver.diagnostics.explain.report import (
    BlockedCard,
    Cause,
    NearMiss,
    NodeGroup,
    NodeReason,
    Verdict,
    Victims,
    WhyReport,
)
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.card_figures import parse_ref, separate
from kerf_dra.driver.view.html.elements import NOTHING, Html, element, join

GOOD: Final = frozenset({Verdict.HAS_DEVICES, Verdict.STARTING, Verdict.FITS, Verdict.WAITING, Verdict.ENDING})
"""The verdicts that need no action of a person."""
_NODES: Final = 6
"""Names of nodes of a group, as in a terminal."""
_CARDS: Final = 8
"""Cards in the way listed of a group: as many as one node has."""


def show_report(report: WhyReport) -> Html:
    """Return the whole report below a heading."""
    shown = {reason.obstacle for group in report.groups for reason in group.reasons}
    causes = [each for each in report.causes if each.code not in shown]
    steps = dict.fromkeys(each.next_step for each in report.causes if each.code in shown)
    return join(
        (
            element("p", report.message, class_="verdict good" if report.verdict in GOOD else "verdict bad"),
            map(_show_cause, causes),
            _show_remedies(report),
            [element("h3", "What to do"), element("ul", [element("li", step) for step in steps])] if steps else NOTHING,
            [element("h3", "By node"), *map(_show_group, report.groups)] if report.groups else NOTHING,
            element("p", f"The scheduler says: {report.scheduler_says}") if report.scheduler_says else NOTHING,
            [element("p", f"Warning: {each}", class_="fault") for each in report.warnings],
            [element("p", f"Note: {each}") for each in report.notes],
        )
    )


def _show_cause(cause: Cause) -> Html:
    step = element("p", f"→ {cause.next_step}", class_="step") if cause.next_step else NOTHING
    return element("div", element("p", element("code", cause.code), f" {cause.message}"), step, class_="cause")


def _show_group(group: NodeGroup) -> Html:
    count = len(group.nodes)
    title = f"{count} node{'' if count == 1 else 's'}: {list_names(group.nodes, _NODES)}"
    entries = [_show_reason(reason) for reason in group.reasons]
    entries += [element("li", *_show_blocked(each)) for each in group.in_the_way[:_CARDS]]
    more = len(group.in_the_way) - _CARDS
    entries += [element("li", f"and {more} more cards")] if more > 0 else []
    return element("details", element("summary", title), element("ul", entries), open=count > 0)


def _show_reason(reason: NodeReason) -> Html:
    named = (("claim", reason.claim), ("request", reason.request))
    about = ", ".join(f"{kind} {name}" for kind, name in named if name)
    misses = element("ul", map(_show_miss, reason.near_misses)) if reason.near_misses else NOTHING
    return element("li", f"{about}: " if about else "", reason.message, misses)


def _show_miss(miss: NearMiss) -> Html:
    unmet = [
        f"{each.source} wants {each.condition}"
        + (f"; it has {', '.join(f'{name} {value}' for name, value in each.has.items())}" if each.has else "")
        for each in miss.unmet
    ]
    others = f" and {miss.devices - 1} like it" if miss.devices > 1 else ""
    return element("li", f"{miss.device}{others}: {'; '.join(unmet)}")


def _show_blocked(card: BlockedCard) -> Iterator[Html | str]:
    at = f"{card.node} " if card.node else ""
    yield f"{at}{card.card} of {card.pool}: {list_names(card.counters) or 'in use'}"
    if card.claims:
        yield join((", held by ", separate([_link_claim(each) for each in card.claims[:_CARDS]])))


def _link_claim(name: str) -> Html:
    """Return a link to a claim; of one that is only planned, whose name no object can have, the name."""
    if name.count("/") > 1:
        return element("span", name)
    return element("a", name, href=addresses.address_of_claim(parse_ref(name)))


def _show_remedies(report: WhyReport) -> Html:
    """Return which claims would have to end; none where that is no question."""
    if report.verdict is not Verdict.DOES_NOT_FIT or not report.claims:
        return NOTHING
    heading = element("h3", "What would make room")
    if not report.remedies:
        return join((heading, element("p", "It would not fit either if running claims ended.")))
    entries = [element("li", _show_victims(each)) for each in report.remedies]
    return join((heading, element("p", "It would fit if these claims ended:"), element("ul", entries)))


def _show_victims(victims: Victims) -> Html:
    each = [
        join(
            (
                _link_claim(victim.claim),
                f" (pod {list_names(victim.pods)})" if victim.pods else "",
            )
        )
        for victim in victims.claims
    ]
    return join((f"on {victims.node}: ", separate(each)))
