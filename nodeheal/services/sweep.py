"""Once a minute: probes silent nodes, repeats lost starts of workflows, wakes incidents that wait for a free slot, and
has free nodes diagnosed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodeheal.contract.names import INCIDENT_ESCALATED
from nodeheal.contract.vocabulary import IncidentState, Provider
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.availability import count_accelerators
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.liveness import Heartbeat, NodeLiveness, find_silent
from nodeheal.domain.fleet.node import ABSENT
from nodeheal.domain.fleet.pool import AcceleratorCount, Census, RunningJobs
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.records_epoch import Epoch
from nodeheal.ports import Ports
from nodeheal.ports.storage import SweepCursor
from nodeheal.services.intake.heartbeats import merge_heartbeats, record_missed_boots, request_interval
from nodeheal.services.intake.idle_nodes import diagnose_idle_node
from nodeheal.services.intake.liveness import LivenessResult, page_mass_silence, probe_silent_nodes
from nodeheal.services.intake.new_nodes import diagnose_new_nodes
from nodeheal.services.jobs.ask_after_ranks import ask_after_ranks
from nodeheal.services.jobs.look_at_training import look_at_training
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.services.notify.compose_records_back import compose_records_back
from nodeheal.services.notify.deliver_notification import report_storm
from nodeheal.services.operators.take_orders import take_orders
from nodeheal.services.recovery.pool_size import LARGE_POOL, census_of, count, note_running_jobs, note_size
from nodeheal.services.recovery.queue import wake_after_reset, wake_for_free_slots
from nodeheal.services.send_digests import announce_digests

# What one run may do. A page of nodes costs one read of a megabyte, a node that is looked at some calls of its
# scheduler, SSM and EC2, whose limits all of us share. What is left over, the next run goes on with.
NODES_A_RUN = 20_000
NODES_A_PAGE = 2_000
LOOKS_A_RUN = 25
RUN_SECONDS = 30
# Of these, for what waits in the pools: eight calls a pool. A thousand pools, at 4 ms a call, take three runs.
DUE_SECONDS = 12
# A workflow starts within a second of its incident. One that has not by then lost its start to a crash or a throttle.
START_SECONDS = 60
# An older incident is stale: a node must not be isolated for a fault of yesterday.
TOO_LATE_SECONDS = 86_400
# What a malformed job record raises in code that trusts it: people write these records, too. Such an error must not
# stop the work for nodes and other pools.
UNTRUE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass
class Swept:
    """What a run did, for the log."""

    has_gone_back: bool = False  # the records: then it did nothing else
    nodes: int = 0
    silent: int = 0
    heard: list[LivenessResult] = field(default_factory=list)
    paged_mass_silence: list[str] = field(default_factory=list)
    booted: list[str] = field(default_factory=list)  # nodes whose boot no event has announced
    interval_requests: int = 0
    restarted: list[str] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    new_nodes: list[str] = field(default_factory=list)  # that are diagnosed before they serve
    idle_nodes: list[str] = field(default_factory=list)  # that are diagnosed while no job needs them
    jobs: list[str] = field(default_factory=list)  # whose start was lost, or that left marks behind
    slow_jobs: list[str] = field(default_factory=list)  # whose owner was told how they train
    running_jobs: dict[str, RunningJobs] = field(default_factory=dict)  # of each pool; none where nobody could look
    ranks: list[str] = field(default_factory=list)  # tasks whose new state no event had reported
    left_waiting: list[str] = field(default_factory=list)  # pools that the next run begins with: the time was up
    storms: list[str] = field(default_factory=list)  # minutes in which more happened than was sent
    ordering: list[Cluster] = field(default_factory=list)  # that may have nodes with orders of people
    orders: list[str] = field(default_factory=list)  # nodes for which one was taken
    digests: list[str] = field(default_factory=list)
    broken: list[Exception] = field(default_factory=list)  # what looking after jobs met, once all else was done
    unfinished: str = ""
    counted: dict[str, int] = field(default_factory=dict)  # the nodes of each pool that was looked over whole
    accelerators: dict[str, AcceleratorCount] = field(default_factory=dict)  # of the same pools


def sweep(ports: Ports, policy: RecoveryPolicy) -> Swept:
    """One run. Safe to repeat, and to break off anywhere: the next one finds what was left.

    It does nothing but page while the records have gone back.
    """
    done, marks = Swept(), ports.epoch.read()
    if marks.has_gone_back:
        done.has_gone_back = True
        page_gone_back(marks, ports)
        return done
    ports.epoch.renew(marks, ports.clock())
    pools, begun_at = sorted({*ports.fleet_index.pools(), *policy.pools}), ports.clock()
    done.storms = report_storm(ports)
    _see_to_pools(pools, begun_at + timedelta(seconds=DUE_SECONDS), done, ports, policy)
    heartbeats: Mapping[str, Heartbeat] = {}
    try:
        heartbeats = ports.heartbeats.newest() if policy.silence.enabled else {}
        _look_over(pools, heartbeats, begun_at + timedelta(seconds=RUN_SECONDS), done, ports, policy)
        done.interval_requests = request_interval(heartbeats, ports, policy)
    except NotAccepted as error:
        done.unfinished = str(error)  # "not now" from a service: the next run asks again
    try:
        done.ranks = ask_after_ranks(pools, ports)
    except UNTRUE as error:
        done.broken.append(error)
    try:
        look = look_at_training(pools, heartbeats, ports, policy)
        done.slow_jobs, done.running_jobs = look.announced, look.running
        for pool, jobs in look.running.items():
            note_running_jobs(pool, jobs, ports)
    except NotAccepted as error:
        done.unfinished = str(error)
    except UNTRUE as error:
        done.broken.append(error)
    done.orders = take_orders(done.ordering, begun_at + timedelta(seconds=RUN_SECONDS), ports, policy)
    if ports.clock() < begun_at + timedelta(seconds=RUN_SECONDS):  # else the next run has the time
        done.digests = announce_digests(pools, ports, policy)
    if done.broken:
        raise done.broken[0]  # an alarm shows functions that fail
    return done


def _see_to_pools(pools: list[str], stop_at: datetime, done: Swept, ports: Ports, policy: RecoveryPolicy) -> None:
    """Handles what waits in each pool, once, from the pool where the last run stopped."""
    begun = ports.fleet_index.cursor()
    order = _from(begun.due, pools)
    for number, pool in enumerate(order):
        done.restarted += _start_what_was_lost(pool, ports)
        done.woken += wake_for_free_slots(pool, ports, policy)
        done.woken += wake_after_reset(pool, ports)
        done.new_nodes += diagnose_new_nodes(pool, ports, policy)
        try:
            done.jobs += sweep_jobs(pool, ports, policy)
        except UNTRUE as error:
            done.broken.append(error)
        if ports.clock() >= stop_at:
            done.left_waiting = order[number + 1 :]
            break
    due = done.left_waiting[0] if done.left_waiting else ""
    if due != begun.due:
        ports.fleet_index.save_cursor(replace(begun, due=due))


def _look_over(
    pools: list[str],
    heartbeats: Mapping[str, Heartbeat],
    stop_at: datetime,
    done: Swept,
    ports: Ports,
    policy: RecoveryPolicy,
) -> None:
    """Look at as many nodes as one run may, from where the last one ended."""
    begun = ports.fleet_index.cursor()
    for pool, liveness_page, place in _portions(begun, pools, ports):
        done.booted += record_missed_boots(liveness_page, heartbeats, ports)
        done.ordering += sorted(_ordering(liveness_page) - {*done.ordering})
        if policy.silence.enabled:
            _listen(pool, merge_heartbeats(liveness_page, heartbeats, ports.clock()), heartbeats, done, ports, policy)
        done.idle_nodes += diagnose_idle_node(pool, liveness_page, ports, policy)
        before = begun.counted if begun.after and pool == begun.pool else Census()
        place = _count(pool, liveness_page, before, place, done, ports)
        ports.fleet_index.save_cursor(place)  # after the look: a run that breaks off here looks at the same nodes again
        done.nodes += len(liveness_page)
        if done.nodes >= NODES_A_RUN or len(done.heard) >= LOOKS_A_RUN or ports.clock() >= stop_at:
            return  # the next run begins with the next pool, so that no pool's dead nodes keep others from a look


def _ordering(liveness_page: list[NodeLiveness]) -> set[Cluster]:
    """Return the clusters whose people may order by a node's mark, as HyperPod has it."""
    return {node.cluster for node in liveness_page if node.provider is Provider.hyperpod and node.state not in ABSENT}


def _count(
    pool: str, liveness_page: list[NodeLiveness], before: Census | None, place: SweepCursor, done: Swept, ports: Ports
) -> SweepCursor:
    """Notes the count of the pool at its end; until then it is carried on with the cursor, which is returned."""
    if before is None:
        return place
    if not before.states and not place.after and len(liveness_page) < LARGE_POOL:
        done.counted[pool] = count(node_liveness.state for node_liveness in liveness_page)
        done.accelerators[pool] = count_accelerators(liveness_page, ports.clock())
        note_size(pool, done.counted[pool], ports)
        return place
    census = before + census_of(liveness_page, ports)
    if place.after:
        return replace(place, counted=census)
    done.counted[pool], done.accelerators[pool] = census.size, census.accelerators
    note_size(pool, census.size, ports, census)
    return place


def _start_what_was_lost(pool: str, ports: Ports) -> list[str]:
    """Start the workflow of incidents that have not begun. Where it runs already, starting it again does nothing."""
    now = ports.clock()
    since, until = now - timedelta(seconds=TOO_LATE_SECONDS), now - timedelta(seconds=START_SECONDS)
    lost = [
        incident
        for incident in ports.fleet_index.incidents(pool, IncidentState.OPEN, since, until)
        if incident.turn == 0
    ]
    for incident in lost:
        ports.workflows.start(incident.incident_id, incident.node_id)
    return [incident.incident_id for incident in lost]


def _portions(
    place: SweepCursor, pools: list[str], ports: Ports
) -> Iterator[tuple[str, list[NodeLiveness], SweepCursor]]:
    """(pool, its nodes or as many as a run may take, where to go on), from where the last run ended, each pool once."""
    order = _from(place.pool, pools)
    after = place.after if order and order[0] == place.pool else ""
    for number, pool in enumerate(order):
        liveness_page, after = _some_of(pool, after, ports)
        following = order[(number + 1) % len(order)]
        yield pool, liveness_page, replace(place, pool=pool if after else following, after=after, counted=None)
        after = ""


def _from(pool: str, pools: list[str]) -> list[str]:
    """Each pool once, from this one on, or from the one that follows where it is gone."""
    first = next((number for number, each in enumerate(pools) if each >= pool), 0)
    return pools[first:] + pools[:first]


def _some_of(pool: str, after: str, ports: Ports) -> tuple[list[NodeLiveness], str]:
    nodes: list[NodeLiveness] = []
    while len(nodes) < NODES_A_RUN:
        page, after = ports.fleet_index.liveness_page(pool, after, NODES_A_PAGE)
        nodes += page
        if not after:
            break
    return nodes, after


def _listen(
    pool: str,
    liveness_page: list[NodeLiveness],
    heartbeats: Mapping[str, Heartbeat],
    done: Swept,
    ports: Ports,
    policy: RecoveryPolicy,
) -> None:
    """Probes nodes that fell silent alone. Where many fell silent together, pages operators and probes none of them."""
    silent = find_silent(liveness_page, policy.silence, policy.breaker, ports.clock())
    done.silent += len(silent.alone) + sum(map(len, silent.waves))
    done.paged_mass_silence += [pool for wave in silent.waves if page_mass_silence(pool, wave, ports)]
    looks = LOOKS_A_RUN - len(done.heard)
    done.heard += probe_silent_nodes([node.node_id for node in silent.alone], looks, heartbeats, ports, policy)


def page_gone_back(marks: Epoch, ports: Ports) -> bool:
    """Page operators, once for each restore. False: they were paged before."""
    page = compose_records_back(marks, ports.console_links)
    if ports.notifier.was_sent(page.key):
        return False
    ports.notifier.announce(INCIDENT_ESCALATED, page)
    return True
