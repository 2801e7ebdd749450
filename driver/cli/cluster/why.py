"""``kerf why``: explains why a pod or a claim waits for devices, does not start, or does not end, and which claims do
not use theirs.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import click

from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.options.cluster import (
    Progress,
    build_cluster_index,
    cluster_options,
    deadline_option,
    format_count,
    namespace_option,
    read_state,
    require_pods,
    require_scheduler_allocation,
    with_exit_codes,
)
from kerf_dra.driver.cli.options.names import complete_objects
from kerf_dra.driver.cli.output import (
    EXIT_DOES_NOT_FIT,
    EXIT_NO_ANSWER,
    WIDTH,
    OutputFormat,
    make_printable,
    output_formats,
    print_document,
    print_text,
    wrap_sentence,
)
from kerf_dra.driver.cli.terminal_pictures import draw_in_terminal
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import (
    BlockedCard,
    Cause,
    CauseCode,
    ClaimState,
    NearMiss,
    NodeGroup,
    NodeReason,
    Verdict,
    Victims,
    WhyReport,
    WorkloadReport,
)
from kerf_dra.driver.diagnostics.explain.resource_faults import explain_unjudged
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from kerf_dra.driver.diagnostics.explain.workload_pods import explain_waiting_pods, explain_workload
from kerf_dra.driver.diagnostics.overview.idle_claims import IdleReport, find_idle_claims
from kerf_dra.driver.diagnostics.times import format_seconds

_EXITS: Final = {
    Verdict.HAS_DEVICES: 0,
    Verdict.STARTING: 0,
    Verdict.CANNOT_START: EXIT_DOES_NOT_FIT,
    Verdict.DEVICES_FAILED: EXIT_DOES_NOT_FIT,
    Verdict.ENDING: 0,
    Verdict.CANNOT_END: EXIT_DOES_NOT_FIT,
    Verdict.FITS: 0,
    Verdict.WAITING: 0,
    Verdict.DOES_NOT_FIT: EXIT_DOES_NOT_FIT,
    Verdict.BLOCKED: EXIT_DOES_NOT_FIT,
    Verdict.INVALID: EXIT_DOES_NOT_FIT,
    Verdict.UNDECIDED: EXIT_NO_ANSWER,
}
_ABOUT_NODES: Final = frozenset({Verdict.FITS, Verdict.DOES_NOT_FIT, Verdict.UNDECIDED})
"""The answers for which it counts what nodes have left of CPU and memory."""
_NOT_CLAIMS: Final = frozenset(
    {CauseCode.EXTENDED_RESOURCE, CauseCode.DISCOVERED_DEVICE_FULL, CauseCode.DISCOVERED_DEVICE_UNLISTED}
)
"""The reasons that go away when pods end that hold devices by no claim: nothing is known of what claims would help."""
_WORST_FIRST: Final = (EXIT_DOES_NOT_FIT, EXIT_NO_ANSWER, 0)
"""The exit codes of several pods: a certain no is worse than no answer."""
_COLORS: Final = {0: "green", EXIT_DOES_NOT_FIT: "red", EXIT_NO_ANSWER: "yellow"}
_CARDS: Final = 8
"""Cards listed for each group of nodes: as many as one node has. ``-o wide`` lists all, as it does names."""
_NODES: Final = 6
"""Names of nodes listed for each group of them: a line."""
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("pod", "pods", "po"),
    "ResourceClaim": ("claim", "claims", "resourceclaim", "resourceclaims", "resourceclaims.resource.k8s.io"),
    "Deployment": ("deployment", "deployments", "deploy", "deployments.apps", "deployment.apps"),
    "ReplicaSet": ("replicaset", "replicasets", "rs", "replicasets.apps", "replicaset.apps"),
    "StatefulSet": ("statefulset", "statefulsets", "sts", "statefulsets.apps", "statefulset.apps"),
    "DaemonSet": ("daemonset", "daemonsets", "ds", "daemonsets.apps", "daemonset.apps"),
    "Job": ("job", "jobs", "jobs.batch", "job.batch"),
    "CronJob": ("cronjob", "cronjobs", "cj", "cronjobs.batch", "cronjob.batch"),
}
"""The names of each kind that kubectl understands, and ``claim``."""
_KINDS: Final = {name: kind for kind, names in _NAMES.items() for name in names}


class _Question(NamedTuple):
    kind: str
    name: str
    """Empty for all waiting pods of the namespace."""


def _complete_subject(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds that the first word may become, and the names of objects after a kind."""
    words = context.params.get("subject") or ()
    if words or "/" in incomplete:
        kind, slash, name = ("", "", incomplete) if words else incomplete.partition("/")
        found = _KINDS.get((words[0] if words else kind).lower(), "")
        return [f"{kind}{slash}{each}" for each in complete_objects(context, found, name)]
    return [name for name in _KINDS if name.startswith(incomplete)]


@click.command(short_help="Say why a pod or a claim waits for devices, or which claims are idle, and what to do.")
@click.argument("subject", nargs=-1, metavar="KIND NAME | KIND/NAME | pods | --idle", shell_complete=_complete_subject)
@namespace_option
@option("-A", "--all-namespaces", is_flag=True, help="With `pods` or --idle: those of all namespaces.")
@option("--idle", is_flag=True, help="Say which claims do not use their devices.")
@cluster_options
@deadline_option
@output_formats("text", "wide", "json", "yaml", "name")
@with_exit_codes
def command(
    subject: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    idle: bool,
    kubeconfig: Path | None,
    context: str | None,
    dump: Path | None,
    deadline_s: float,
    output: OutputFormat,
) -> int:
    """Say why a pod or a claim waits for devices, does not start, or does not end, and what to do.

    KIND is pod, claim (resourceclaim), deployment, replicaset, statefulset, daemonset, job or cronjob, or kubectl's
    short name of it. `pods` without a name stands for all pods of the namespace that wait, with -A of all namespaces.
    --idle, in place of a KIND, lists the claims that do not use their devices, the longest idle first.

    With -o wide no list of nodes, cards or claims is cut short; -o name prints the pods that were explained and have
    not got their devices, or the idle claims, for kubectl.

    Exit code 0: it has its devices, it fits, or it comes or goes by itself; 1: it does not, and you have to act; 2:
    bad input; 3: no answer. Of several pods the worst counts: 1, then 3, then 0. With --idle 0, or 3 where no node
    reports use.
    """
    if idle:
        return _list_idle(subject, namespace, kubeconfig, context, dump, output, all_namespaces=all_namespaces)
    question = _parse_subject(subject)
    if all_namespaces and (question.name or namespace):
        raise click.UsageError("-A is for `kerf why pods` and --idle: leave out the name and --namespace")
    source = read_state(kubeconfig, context, dump, namespace)
    require_pods(source, "why")
    cluster = build_cluster_index(source, deadline_s)
    answer = _ask(cluster, question, "" if all_namespaces else namespace or source.namespace)
    reports = answer.pods if isinstance(answer, WorkloadReport) else (answer,)
    if output in ("text", "wide"):
        click.echo("\n".join(render_answer(cluster, answer, is_wide=output == "wide")))
    elif output == "name":
        for report in reports:
            if report.verdict is not Verdict.HAS_DEVICES:
                print_text(f"{report.subject.kind.lower()}/{report.subject.name}")
    else:
        print_document(answer, output)
    exits = {_EXITS[report.verdict] for report in reports}
    return next((code for code in _WORST_FIRST if code in exits), 0)


def _list_idle(
    subject: Sequence[str],
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    dump: Path | None,
    output: OutputFormat,
    *,
    all_namespaces: bool,
) -> int:
    """Print which claims have idle devices, and return the exit code."""
    if subject:
        raise click.UsageError("--idle lists claims: leave out the kind and the name")
    if all_namespaces and namespace:
        raise click.UsageError("-A stands for all namespaces: leave out --namespace")
    source = read_state(kubeconfig, context, dump, namespace)
    require_scheduler_allocation(source, "why --idle")
    require_pods(source, "why --idle")
    report = find_idle_claims(build_cluster_index(source), "" if all_namespaces else namespace or source.namespace)
    if output in ("text", "wide"):
        click.echo("\n".join(render_idle(report, is_wide=output == "wide")))
    elif output == "name":
        for claim in report.claims:
            print_text(f"resourceclaim/{claim.name}")
    else:
        print_document(report, output)
    return 0 if report.is_known else EXIT_NO_ANSWER


def render_idle(report: IdleReport, width: int = WIDTH, *, is_wide: bool = False) -> Iterator[str]:
    """Yield the idle claims in lines: how many there are, each with its devices, and what to do about each;
    ``is_wide``: no list is cut short.
    """
    report, most = make_printable(report), sys.maxsize if is_wide else _NODES
    about = f"namespace {report.namespace}" if report.namespace else "all namespaces"
    yield from wrap_sentence(f"{about}: {report.message}", width)
    for claim in report.claims:
        pods = f"pod {list_names(claim.pods, most)}" if claim.pods else "no pod"
        where = f" on {list_names(claim.nodes, most)}" if claim.nodes else ""
        part = "" if claim.idle.is_whole else "in part "
        state = click.style(f"{part}idle for {format_seconds(claim.idle.seconds)}", fg="yellow")
        yield ""
        yield f"claim {claim.namespace}/{claim.name}: {state}, since {claim.idle.since}"
        yield from wrap_sentence(f"{pods}{where}", width, "  ", "    ")
        yield from (f"    {device}" for device in claim.idle.devices)
        yield from _step(claim.next_step, width)
    if report.next_step:
        yield ""
        yield from _step(report.next_step, width)


def _parse_subject(subject: Sequence[str]) -> _Question:
    """Return what the arguments ask for. Raises UsageError."""
    if not subject:
        raise click.UsageError("name what to explain, such as `kerf why pod/NAME` or `kerf why pods`, or give --idle")
    parts = subject[0].split("/") if len(subject) == 1 else list(subject)
    kind = _KINDS.get(parts[0].lower())
    if kind is None:
        known = ", ".join(names[0] for names in _NAMES.values())
        if len(parts) == 1:
            raise click.UsageError(f"say what {parts[0]!r} is, such as `kerf why pod/{parts[0]}`; there is {known}")
        raise click.UsageError(f"{parts[0]!r} is not a kind that uses devices; there is {known}")
    if len(parts) == 1 and kind == "Pod":
        return _Question(kind, "")
    if len(parts) != 2 or not parts[1]:
        raise click.UsageError(f"name one {kind}: `kerf why {parts[0]} NAME` or `kerf why {parts[0]}/NAME`")
    return _Question(kind, parts[1])


def _ask(cluster: ClusterIndex, question: _Question, namespace: str) -> WhyReport | WorkloadReport:
    ref = ObjectRef(namespace, question.name)
    if not question.name:
        return explain_waiting_pods(cluster, namespace, Progress())
    if question.kind in ("Pod", "ResourceClaim"):
        explain: Callable[..., WhyReport] = explain_pod if question.kind == "Pod" else explain_claim
        return explain(cluster, ref, Progress())
    return explain_workload(cluster, question.kind, ref, Progress())


def render_answer(
    cluster: ClusterIndex, answer: WhyReport | WorkloadReport, width: int = WIDTH, *, is_wide: bool = False
) -> Iterator[str]:
    """Yield the answer to a question in lines, with the cards that it is about; for the parameters see
    ``render_report``.
    """
    if isinstance(answer, WorkloadReport):
        subject = answer.subject
        name = f"{subject.namespace}/{subject.name}".removeprefix("/")
        about = f"{subject.kind.lower()} {name}" if name else "all namespaces"
        yield to_one_line(f"{about}: {answer.message}")
        for report in answer.pods:
            yield ""
            yield from render_report(report, width, is_wide=is_wide)
    else:
        yield from render_report(answer, width, is_wide=is_wide)
        yield from _draw_cards(cluster, answer, width, is_wide=is_wide)
    reports = answer.pods if isinstance(answer, WorkloadReport) else (answer,)
    if any(report.verdict in _ABOUT_NODES for report in reports) and (why := explain_unjudged(cluster)):
        yield ""
        yield from wrap_sentence(why, width)
    for plural, why in cluster.state.forbidden_lists.items():
        yield ""
        yield from wrap_sentence(
            to_one_line(f"{plural} could not be read, so what they say is missing here: {why}"), width
        )


def _draw_cards(cluster: ClusterIndex, answer: WhyReport, width: int, *, is_wide: bool) -> Iterator[str]:
    """Draw the cards that are in the way, and those of which the claims of the subject have devices."""
    cards = sys.maxsize if is_wide else _CARDS
    blocked = {(*_split_pool(one.pool), one.card): None for group in answer.groups for one in group.in_the_way[:cards]}
    own = {f"{answer.subject.namespace}/{claim.name}" for claim in answer.claims if claim.devices}
    devices = [device for claim in answer.claims for device in claim.devices]
    pools = [(driver, pool) for driver, pool, _ in blocked]
    pools += [_split_pool(device.rpartition("/")[0]) for device in devices]
    pictures = [
        replace(each, gauges=())
        for each in cluster.build_pictures(pools)
        if (each.driver, each.pool, each.name) in blocked
        or own.intersection(each.holders)
        or (not each.name and (each.driver, each.pool) in pools)
    ]
    if pictures:
        yield ""
        yield from draw_in_terminal(pictures[:cards], columns=min(width, shutil.get_terminal_size().columns))
    if len(pictures) > cards:
        yield f"and {format_count(len(pictures) - cards, 'card')} more; --output wide has them all"


def _split_pool(pool: str) -> tuple[str, str]:
    """Return driver and name of a pool that is written ``driver/pool``."""
    driver, _, name = pool.partition("/")
    return driver, name


def render_summary(answer: WhyReport, width: int = WIDTH, *, is_short: bool = False) -> Iterator[str]:
    """Yield the verdict of a report, its most important cause, and the least that would have to end, or what to do.

    ``is_short``: of the cause there is the code only.
    """
    answer = make_printable(answer)
    cause = next(iter(answer.causes), None)
    is_said = cause is not None and (is_short or cause.message == answer.message)
    yield from _headline(answer, cause if is_said else None, width)
    if cause is not None and not is_said:
        yield from wrap_sentence(f"{cause.message} ({cause.code})", width, "  ", "    ")
    if answer.remedies:
        least = answer.remedies[0]
        yield from _step(f"it would fit if these claims ended on {least.node}: {_ending(least)}", width)
    elif cause is not None:
        yield from _step(cause.next_step, width)


def _headline(answer: WhyReport, said: Cause | None, width: int) -> Iterator[str]:
    """Yield what is asked for and the verdict; ``said`` is the cause that it has the words of."""
    subject = answer.subject
    color = _COLORS[_EXITS[answer.verdict]]
    about = f"{'pod' if subject.kind == 'Pod' else 'claim'} {subject.namespace}/{subject.name}:"
    first, *others = wrap_sentence(f"{about} {answer.message}" + (f" ({said.code})" if said else ""), width)
    yield about + click.style(first.removeprefix(about), fg=color)
    yield from (click.style(line, fg=color) for line in others)


def render_report(answer: WhyReport, width: int = WIDTH, *, is_wide: bool = False) -> Iterator[str]:
    """Yield the report in lines, the sentences of which have at most ``width`` columns; ``is_wide``: no list is cut
    short. The texts of the report are made printable.
    """
    answer = make_printable(answer)
    said, *more = answer.causes if answer.causes[:1] and answer.causes[0].message == answer.message else (None,)
    yield from _headline(answer, said, width)
    if said is not None:
        yield from _step(said.next_step, width)
    if any(claim.state != "pending" for claim in answer.claims) or len(answer.claims) > 1:
        yield ""
        for claim in answer.claims:
            yield from _claim(claim)
    yield from reason_lines(answer, width, is_wide=is_wide)
    shown = {reason.obstacle for group in answer.groups for reason in group.reasons}
    for cause in more if said else answer.causes:
        if cause.code not in shown:
            yield ""
            yield from _cause(cause, width)
    if steps := dict.fromkeys(cause.next_step for cause in answer.causes if cause.code in shown):
        yield "\nwhat to do"
        for step in steps:
            yield from _step(step, width)
    if answer.scheduler_says and not any(
        cause.is_fault or answer.scheduler_says in cause.message for cause in answer.causes
    ):
        yield ""
        yield from wrap_sentence(f"the scheduler says: {answer.scheduler_says}", width)
    for text in (*(f"warning: {each}" for each in answer.warnings), *(f"note: {each}" for each in answer.notes)):
        yield ""
        yield from wrap_sentence(text, width)


def _claim(claim: ClaimState) -> Iterator[str]:
    state = f"claim {claim.name} is {claim.state}" + (":" if claim.devices else "")
    yield f"  {state}"
    for device in claim.devices:
        yield f"    {device}"
    for waits_for in claim.waits_for:
        yield f"    waits for {waits_for}"


def _cause(cause: Cause, width: int) -> Iterator[str]:
    code = click.style(cause.code, bold=True)
    first, *others = wrap_sentence(f"{cause.code}: {cause.message}", width)
    yield first.replace(cause.code, code, 1)
    yield from others
    yield from _step(cause.next_step, width)


def _step(step: str, width: int) -> list[str]:
    return wrap_sentence(step, width, "  -> ", "     ")


def reason_lines(answer: WhyReport, width: int = WIDTH, *, is_wide: bool = False) -> Iterator[str]:
    """Yield the obstacles by node, and what would help; ``is_wide``: no list is cut short."""
    for group in answer.groups:
        yield ""
        yield from _group(group, width, is_wide=is_wide)
    codes = {reason.obstacle for group in answer.groups for reason in group.reasons}
    is_about_claims = answer.claims and not codes & _NOT_CLAIMS  # limits alone hold no claims
    if answer.verdict is Verdict.DOES_NOT_FIT and answer.groups and is_about_claims:
        yield ""
        yield from _remedies(answer)


def _group(group: NodeGroup, width: int, *, is_wide: bool) -> Iterator[str]:
    cards = sys.maxsize if is_wide else _CARDS
    nodes = list_names(group.nodes, sys.maxsize if is_wide else _NODES)
    yield click.style(f"{format_count(len(group.nodes), 'node')}: {nodes}", bold=True)
    for reason in _join_requests(group.reasons):
        yield from wrap_sentence(f"{_where(reason)}{reason.message}", width, "  ", "    ")
        for miss in reason.near_misses:
            yield from _near_miss(miss, width)
    for one in group.in_the_way[:cards]:
        described = _in_the_way(one, with_node=len(group.nodes) > 1, is_wide=is_wide)
        yield from wrap_sentence(described, width, "    ", "      ")
    if len(group.in_the_way) > cards:
        yield f"    and {format_count(len(group.in_the_way) - cards, 'card')} more; --output wide has them all"


def _join_requests(reasons: Sequence[NodeReason]) -> Iterator[NodeReason]:
    """Yield the reasons, those once that differ only in the request."""
    alike: dict[object, tuple[NodeReason, list[str]]] = {}
    for reason in reasons:
        key: object = id(reason) if reason.near_misses else replace(reason, request="")  # misses cannot be hashed
        alike.setdefault(key, (reason, []))[1].append(reason.request)
    for reason, requests in alike.values():
        yield replace(reason, request=", ".join(requests))


def _where(reason: NodeReason) -> str:
    return f"claim {reason.claim}, request {reason.request}: " if reason.claim else ""


def _near_miss(miss: NearMiss, width: int) -> Iterator[str]:
    alike = f" and {miss.devices - 1} like it" if miss.devices > 1 else ""
    yield f"    nearest: {miss.device}{alike}"
    for unmet in miss.unmet:
        has = ", ".join(f"{name} is {value}" for name, value in unmet.has.items())
        condition = " ".join(unmet.condition.split())
        yield from wrap_sentence(
            condition + (f": {has}" if has else "") + f"  ({unmet.source})", width, "      ", "        "
        )


def _in_the_way(one: BlockedCard, *, with_node: bool, is_wide: bool) -> str:
    at = f"{one.node}: " if with_node and one.node else ""
    what = _runs(one.counters) if one.counters else "in use"
    holders = (
        f", held by {list_names(one.claims, sys.maxsize if is_wide else 4)}" if one.claims else ", more than there is"
    )
    return f"{at}{one.card} of {one.pool}: {what}{holders}"


def _runs(names: Sequence[str]) -> str:
    """Join numbered names with consecutive numbers: ``memory-slice-0…3``."""
    runs: list[list[str]] = []
    for name in sorted(names, key=lambda name: (name.rpartition("-")[0], _number(name))):
        stem = name.rpartition("-")[0]
        if runs and _number(name) > 0 and f"{stem}-{_number(name) - 1}" == runs[-1][-1]:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}…{_number(run[-1])}" for run in runs)


def _number(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else -1


def _remedies(answer: WhyReport) -> Iterator[str]:
    if not answer.remedies:
        if answer.remedies_searched:
            nodes = format_count(answer.remedies_searched, "node")
            yield f"it would not fit either if running claims ended ({nodes} searched)"
        else:
            yield "it would not fit either if running claims ended"
        return
    yield "it would fit if these claims ended:"
    for remedy in answer.remedies:
        yield f"  on {remedy.node}: {_ending(remedy)}"


def _ending(remedy: Victims) -> str:
    return ", ".join(
        f"{claim.claim}" + (f" (pod {list_names(claim.pods)})" if claim.pods else "") for claim in remedy.claims
    )
