"""Past events through a policy, and through two of them. Nothing is touched, and AWS is not asked."""

from collections.abc import Callable, Iterable, Sequence

from nodeheal.api.file_views import DecidedOtherwise, ReplayComparison, ReplayedDecision, ReplayView
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.operators.replay import Past, Replay, ReplayClock, Replayed, in_order

MakePorts = Callable[[ReplayClock], Ports]  # a world in memory that tells the time by this clock


def recorded(incident_ids: Sequence[str], ports: Ports) -> list[Past]:
    """Return the events of these incidents, oldest first, each with the job that ran on its node."""
    histories = [ports.incidents.history(name) for name in incident_ids]
    return in_order([Past(event, history.incident.job_id) for history in histories for event in history.events])


def replay(
    past: Sequence[Past],
    policy: RecoveryPolicy,
    make_ports: MakePorts,
    watch: Callable[[list[Past]], Iterable[Past]] = iter,
) -> ReplayView:
    """Return what the policy makes of these events. `watch`: yields them all, and shows how far the replay has come."""
    clock = ReplayClock()
    world = Replay(policy, make_ports(clock), clock)
    for event in watch(in_order(past)):
        world.take(event)
    return _view(world.finish(), len(past), policy.version)


def compare(
    past: Sequence[Past], before: RecoveryPolicy, after: RecoveryPolicy, make_ports: MakePorts
) -> ReplayComparison:
    """Return what both policies make of these events, and the incidents in which they decide otherwise."""
    old, new = replay(past, before, make_ports), replay(past, after, make_ports)
    old_paths, new_paths = _paths(old), _paths(new)
    pairs = [(old_paths.get(name, ()), new_paths.get(name, ())) for name in {**old_paths, **new_paths}]
    otherwise = [_otherwise(*pair) for pair in pairs if _steps(pair[0]) != _steps(pair[1])]
    return ReplayComparison(before=old, after=new, otherwise=tuple(sorted(otherwise, key=lambda row: row.at)))


def _paths(view: ReplayView) -> dict[str, tuple[ReplayedDecision, ...]]:
    paths: dict[str, tuple[ReplayedDecision, ...]] = {}
    for decision in view.decisions:
        paths[decision.incident_id] = (*paths.get(decision.incident_id, ()), decision)
    return paths


def _steps(path: tuple[ReplayedDecision, ...]) -> list[tuple[str, str]]:
    return [(decision.step, decision.outcome) for decision in path]


def _otherwise(before: tuple[ReplayedDecision, ...], after: tuple[ReplayedDecision, ...]) -> DecidedOtherwise:
    first = min((*before, *after), key=lambda decision: decision.at)
    return DecidedOtherwise(
        at=first.at,
        incident_id=first.incident_id,
        node_id=first.node_id,
        fault=first.fault,
        before=before,
        after=after,
    )


def _view(replayed: Replayed, events: int, version: str) -> ReplayView:
    counts = {name: dict(sorted(getattr(replayed, name).items())) for name in ("ingested", "actions", "endings")}
    return ReplayView.model_validate(
        {
            **vars(replayed),
            **counts,
            "events": events,
            "policy_version": version,
            "nodes_touched": sorted(replayed.nodes_touched),
            "still_waiting": sorted(replayed.still_waiting),
        },
        from_attributes=True,
    )
