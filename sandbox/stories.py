"""The stories of the demo, by name: what breaks, what people do meanwhile, and how it must end."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Awaited, Ending, Family, NodeState, Provider, Verdict
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.parsers.dcgm_injected import POLICY_DOUBLE_BIT
from nodeheal.services.operators.operator_guardrails import pause_pool, reset_breaker
from nodeheal.services.operators.release_node import release_node
from sandbox.script import SUBJECTS, Expected, Move, Script
from sandbox.story import Story, StoryError
from sandbox.unmanaged_tasks import unmanaged_tasks_are_looked_for, unmanaged_tasks_move_in

FALLEN = "NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus."
CAREFUL = "careful"  # the pool of sandbox/policy.json that needs approval
HOLDER = "mi-00000000000000000"  # a node that is out of service already, in the story of the full budget
BROKEN_LINK = (
    "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, "
    "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
)
ECC = "NVRM: Xid (PCI:0000:b9:00): 48, pid=<unknown>, name=<unknown>, An uncorrectable double bit error (DBE)"
ASKS_FOR_RESET = (
    "NVRM: Xid (PCI:0000:b9:00): 154, pid=<unknown>, name=<unknown>, "
    "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
)
RECOVERED, HUMAN = SUBJECTS[Ending.RECOVERED], SUBJECTS[Ending.HANDED_TO_A_HUMAN]
OBSERVED = SUBJECTS[Ending.OBSERVED_ONLY]
QUESTION, TRIPPED, NO_CAPACITY = "[nodeheal] approve?", "[nodeheal] breaker open", "[nodeheal] no capacity"
DROPPED = "[nodeheal] breaker reset"
STALE = timedelta(hours=1)


@dataclass(frozen=True)
class Named:
    """A story with its one line for --help. `then`: further parts, each on nodes of its own in the same cloud."""

    about: str
    script: Script
    then: tuple[Script, ...] = ()


def fallen(**changes: object) -> Script:
    """Return the story of a GPU that falls off the bus, with these changes."""
    return replace(Script(FALLEN, Family.xid, "79"), **changes)  # type: ignore[arg-type]


def _link(**changes: object) -> Script:
    return replace(Script(BROKEN_LINK, Family.xid, "74"), **changes)  # type: ignore[arg-type]


def _wants_reset(**changes: object) -> Script:
    script = Script(ASKS_FOR_RESET, Family.xid, "154", subcode="GPU_RESET", pool="reset", nodes=2)
    return replace(script, **changes)  # type: ignore[arg-type]


def _gpu_is_held(story: Story) -> str:
    (story.victim_handle.directory / "gpu_in_use").touch()
    return f"something on {story.victim} has its GPU open that no list of processes shows"


def _will_not_come_back(story: Story) -> str:
    victim = story.victim
    story.sandbox.behave(stay_down=victim)
    return f"{victim} will go down at its next reboot and stay down"


def _nothing_to_be_had(story: Story) -> str:
    story.sandbox.behave(no_capacity=-1)
    return "EC2 has no capacity for this machine"


def _second_fault(story: Story) -> str:
    """Inject another fault of the same node, while the first one is being handled."""
    if story.told.incident is None:
        return ""
    story.break_again(ECC)
    return f"{story.victim} reports another fault: {ECC.partition('Xid')[2]}"


def _answers(word: str) -> Move:
    """Open the link in the email, and send the page's form, as a person does."""

    def move(story: Story) -> str:
        links = [link for subject, body in story.told.mails if QUESTION in subject for link in _links(body, word)]
        if not links:
            return ""
        story.sandbox.open_link(links[0])  # as a mail scanner and a browser do; it decides nothing
        status, _ = story.sandbox.open_link(links[0], {"who": "ada", "why": "seen on the phone"})
        return f"ada opens the email and answers: {word} (HTTP {status})"

    return move


def _links(body: str, word: str) -> list[str]:
    return [link for link in re.findall(r"https://\S+", body) if f"answer={word}" in link]


def _nobody_answers(story: Story) -> str:
    asked = any(QUESTION in subject for subject, _ in story.told.mails)
    return "nobody opens the email" if asked else ""


def _budget_is_full(story: Story) -> str:
    """Make one node of the pool isolated by nodeheal already, where the pool permits one."""
    any_node = story.ports.nodes.in_pool(story.script.pool)[0]
    holder = replace(
        any_node,
        node_id=HOLDER,
        instance_id=HOLDER,
        state=NodeState.ISOLATED,
        state_reason="waits for a new riser card",
        job_id=None,
        open_incident=None,
        version=0,
    )
    story.ports.nodes.save(holder)
    story.ports.pools.claim(story.script.pool, HOLDER, 1)
    return f"{HOLDER} is out of service already; the pool allows one node at a time"


def _slot_is_freed(story: Story) -> str:
    if not _waits_for(story, Awaited.BUDGET):
        return ""
    release_node(HOLDER, "the riser card is new", story.ports)
    return f"an operator gives {HOLDER} back: its slot is free"


def _events_are_taken_in_side_by_side(story: Story) -> str:
    """Warm up ingest, so that events are processed in parallel as on a busy account. An environment that starts only
    with the faults takes a second or more, in which the first node would be isolated: rightly, since the third is not
    known yet.
    """
    node = story.ports.nodes.in_pool(story.script.pool)[0]
    known = {"family": Family.heartbeat, "code": "alive", "verdict": Verdict.OK, "observed_at": node.booted_at}
    alive = _fault_of(node, node.boot_id).model_copy(update=known)
    signed = story.sandbox.voices.signed(node.node_id, names.NODE_HEALTH_REPORTED, alive.model_dump_json())
    at = node.booted_at.isoformat()
    body = json.dumps({"source": names.AGENT_SOURCE, "time": at, "detail": json.loads(signed)})
    batch = json.dumps({"Records": [{"messageId": "1", "eventSource": "aws:sqs", "body": body}]}).encode()
    invoke = partial(story.sandbox.client("lambda").invoke, FunctionName="nodeheal-ingest", Payload=batch)
    with ThreadPoolExecutor(2) as both:
        refused = [one.result().get("FunctionError") for one in [both.submit(invoke) for _ in range(2)]]
    if any(refused):
        raise StoryError(f"ingest does not process a heartbeat: {refused}; look at {story.sandbox.log}")
    return "events are processed in parallel, as on a busy account"


def _breaker_is_reset(story: Story) -> str:
    is_told = any(TRIPPED in subject for subject, _ in story.told.mails)
    line = story.ports.operations.queued(names.pool_line(Awaited.BREAKER, story.script.pool))
    if not is_told or len(line) < story.script.breaks:
        return ""
    woken = reset_breaker(story.script.pool, "the rack has power again", story.ports)
    told = counted(woken, "incident decides", "incidents decide")
    return f"an operator finds the cause and resets the breaker: {told} again"


def _waits_for(story: Story, awaited: Awaited) -> bool:
    incident = story.told.incident
    history = story.ports.incidents.history(incident.incident_id) if incident else None
    last = history.turns[-1].decision if history and history.turns else None
    return last is not None and last.awaits is awaited


def _pool_is_paused(story: Story) -> str:
    pause_pool(story.script.pool, 3_600, "a new driver is being rolled out", story.ports)
    return f"an operator pauses pool {story.script.pool}: a new driver is being rolled out"


def _old_event_arrives(story: Story) -> str:
    """Deliver a late event of an agent's spool: a fault of the boot before, seen an hour ago."""
    if story.told.incident is None or story.told.incident.ending is None:
        return ""
    node = next(n for n in story.ports.nodes.in_pool(story.script.pool) if n.node_id == story.told.broken)
    event = _fault_of(node, node.past_boots[0])
    story.sandbox.voices.says(event)
    return (
        f"{node.node_id} delivers a fault of its last boot late, from {event.observed_at:%H:%M:%S}: history, no order"
    )


def _fault_of(node: Node, boot_id: str) -> HealthEvent:
    return HealthEvent(
        schema_version=1,
        event_id=f"late-{node.node_id}",
        node_id=node.node_id,
        cluster=node.cluster.name,
        pool=node.pool,
        provider=Provider.hybrid,
        scheduler=node.cluster.kind,
        instance_id=node.instance_id,
        boot_id=boot_id,
        observed_at=node.booted_at - STALE,
        source="kernel_log",
        family=Family.xid,
        code="79",
        verdict=Verdict.FAILED,
        evidence=FALLEN,
        agent_version=node.agent_version or "unknown",
    )


def _expects(ending: Ending, finishes: bool, restarts: bool, *mails: str) -> Expected:
    return Expected(ending, finishes, restarts, mails)


_HUMAN = Ending.HANDED_TO_A_HUMAN
STORIES: dict[str, Named] = {
    "fixed-by-reboot": Named("a GPU falls off the bus; one reboot brings it back", fallen()),
    "gpu-reset": Named(
        "the driver asks for a reset: the GPU is reset and proven, and the node does not reboot", _wants_reset()
    ),
    "gpu-reset-refused": Named(
        "the driver asks for a reset, and something has the GPU open: the node is rebooted instead",
        _wants_reset(prepares=(_gpu_is_held,)),
    ),
    "dcgm-policy": Named(
        "a double-bit error that only DCGM's policies read is injected: the node is isolated, rebooted and proven",
        Script(
            "dcgmi test --inject --gpuid 0 -f 319 -v 4",
            Family.dcgm,
            POLICY_DOUBLE_BIT,
            dcgm_value=(319, 4),
            checks=("dcgm_counters",),
            steps=300,  # the job must still run when the counter is read, at most ten seconds later
            kills=False,  # nothing but the counter is changed
        ),
    ),
    "fixed-by-replacement": Named("the reboot does not help; a warm spare takes over", fallen(persists=True)),
    "fixed-by-stop-start": Named(
        "the reboot does not help on EC2: the machine is stopped, starts on another host, and the fault stays behind",
        fallen(
            provider="template",
            nodes=2,
            pool="moved",
            persists=True,
            of_host=True,
            expects=_expects(Ending.RECOVERED, True, True, RECOVERED),
        ),
    ),
    "replaced-by-group": Named(
        "a broken NVLink on EC2: the Auto Scaling group makes a new machine, which is proven first",
        _link(provider="group", nodes=2, pool="grouped", expects=_expects(Ending.RECOVERED, True, True, RECOVERED)),
    ),
    "replaced-from-template": Named(
        "a broken NVLink on EC2: a new machine is launched first, and the broken one given back when it is proven",
        _link(provider="template", nodes=2, pool="alone", expects=_expects(Ending.RECOVERED, True, True, RECOVERED)),
    ),
    "no-capacity": Named(
        "EC2 has no machine to give: nodeheal waits, tries again, and says what is missing",
        _link(
            provider="template",
            nodes=2,
            pool="alone",
            prepares=(_nothing_to_be_had,),
            expects=_expects(_HUMAN, False, False, NO_CAPACITY, HUMAN),
        ),
    ),
    "never-returns": Named(
        "the node does not come back from its reboot; a warm spare takes over",
        fallen(prepares=(_will_not_come_back,), expects=_expects(_HUMAN, True, True, HUMAN)),
    ),
    "approval-given": Named(
        "the pool asks first; a human clicks Approve in the email",
        fallen(
            pool=CAREFUL,
            moves=(_answers("approve"),),
            expects=_expects(Ending.RECOVERED, True, True, QUESTION, RECOVERED),
        ),
    ),
    "approval-refused": Named(
        "the pool asks first; a human clicks Refuse, and nothing is touched",
        fallen(
            pool=CAREFUL,
            kills=False,
            moves=(_answers("refuse"),),
            expects=_expects(_HUMAN, True, False, QUESTION, HUMAN),
        ),
    ),
    "approval-ignored": Named(
        "the pool asks first; nobody answers, and silence is no yes",
        fallen(
            pool=CAREFUL, kills=False, moves=(_nobody_answers,), expects=_expects(_HUMAN, True, False, QUESTION, HUMAN)
        ),
    ),
    "budget-full": Named(
        "one node is out already; the incident waits in line until the slot is free",
        fallen(
            prepares=(_budget_is_full,),
            moves=(_slot_is_freed,),
            expects=_expects(Ending.RECOVERED, True, True, RECOVERED),
        ),
    ),
    "breaker-open": Named(
        "three nodes fail together; nothing is touched, one page, and a human resets the breaker",
        fallen(
            breaks=3,
            kills=False,
            prepares=(_events_are_taken_in_side_by_side,),
            moves=(_breaker_is_reset,),
            expects=_expects(Ending.OBSERVED_ONLY, True, False, TRIPPED, DROPPED),
        ),
    ),
    "two-faults": Named(
        "one node reports two faults: one incident, one recovery, one email",
        fallen(moves=(_second_fault,), expects=_expects(Ending.RECOVERED, True, True, RECOVERED)),
    ),
    "two-nodes": Named(
        "two nodes of one job fail: one after the other is healed, and the last one brings the job back",
        fallen(breaks=2, expects=_expects(Ending.RECOVERED, True, True, RECOVERED, RECOVERED)),
    ),
    "tasks-of-others": Named(
        "two people have tasks on the node: the one that says so is stopped and started again, the other left alone",
        fallen(
            pool="shared",
            kills=False,  # unmanaged tasks are stopped whatever a lost GPU has killed
            prepares=(unmanaged_tasks_move_in,),
            moves=(unmanaged_tasks_are_looked_for,),
            expects=_expects(Ending.RECOVERED, True, True, RECOVERED),
        ),
    ),
    "hung-collective": Named(
        "a rank stands still, and nothing says so: it is named within a minute, and the job starts again",
        Script(
            "the rank stands still within its own work (SIGSTOP); nothing is logged",
            Family.host,
            names.TRAINING_HANG,
            freezes=True,
            kills=False,
            steps=400,
        ),
    ),
    "loss-diverged": Named(
        "an update overflows: the job goes back to a checkpoint from before it, and not to the newest",
        Script(
            "the update of step 70 overflows; the job trains on, and its loss is not a number",
            Family.host,
            names.TRAINING_DIVERGED,
            overflows=70,
            kills=False,
            steps=800,
        ),
    ),
    "paused": Named(
        "an operator has paused the pool; nodeheal only tells",
        fallen(
            kills=False,
            prepares=(_pool_is_paused,),
            expects=_expects(Ending.OBSERVED_ONLY, True, False, OBSERVED),
        ),
    ),
    "stale-event": Named(
        "after the recovery an old fault arrives late, and is history",
        fallen(moves=(_old_event_arrives,), expects=_expects(Ending.RECOVERED, True, True, RECOVERED)),
    ),
}
