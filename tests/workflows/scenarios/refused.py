"""A write, a claim or a call that is refused, throttled or too late, and what must not be done as if it were not.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from nodeheal.contract.names import group_line
from nodeheal.contract.steps import Reservation
from nodeheal.contract.vocabulary import Action, NodeState, Outcome, Provider
from nodeheal.domain.errors import MachineRefused, NotAccepted, PlacementRefused
from nodeheal.domain.fleet.machine import GiveBack, Machine, Power
from nodeheal.services.boot_wait import BOOT
from nodeheal.services.new_machine import NEW_MACHINE, settle
from nodeheal.services.reboot_node import reboot_node
from nodeheal.services.replacement_slots import REPLACEMENT
from nodeheal.services.reserve_attempt import reserve_attempt
from nodeheal.services.send_command import COMMAND, name_command, send_once, send_reboot
from nodeheal.services.stand_in import claim_new
from nodeheal.services.start_gang import record_run, start_ranks
from nodeheal.services.steps import result_of, resume
from tests.unit.builders import node
from tests.unit.test_replacement import N, Pool
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened, waiting
from tests.workflows.stories import NEW, TEMPLATE

# Waits


def _names_its_command_late() -> Moment:
    """A call has sent its command, and the next one has stored its wait before the first could name the command."""
    it, mine = opened()
    it.plain.waits.save(waiting(BOOT, mine, token="newer"))
    older = waiting(BOOT, mine, token="older")
    it.does(lambda: name_command(older, COMMAND, "command-1", it.ports))
    return it


def a_call_names_its_command_after_the_next_one_has_begun() -> list[str]:
    stored = _names_its_command_late().plain.waits.get(BOOT, BROKEN)
    return [] if stored is not None and stored.token == "newer" else ["who waits now is resumed by nobody"]


def a_command_is_named_when_nobody_waits_for_it() -> list[str]:
    left = _names_its_command_late().plain.waits.get(COMMAND, "command-1")
    return [] if left is None else ["what the next call waits for is ended by the failure of an older command"]


def a_wait_is_told_twice_because_the_first_was_throttled() -> list[str]:
    it, mine = opened()
    wait = waiting(BOOT, mine)
    it.plain.waits.save(wait)
    done = result_of(mine, it.plain, Outcome.DONE, "back with a new boot id")

    def too_busy(token: str, result: object) -> bool:
        raise NotAccepted("too many calls")

    resumes = it.plain.workflows.resume
    it.plain.workflows.resume = too_busy  # type: ignore[method-assign]
    with suppress(NotAccepted):
        resume(it.plain, wait, done)
    it.plain.workflows.resume = resumes  # type: ignore[method-assign]
    return [] if it.plain.waits.get(BOOT, BROKEN) is not None else ["told again, it finds nobody who waits"]


# Commands


def a_command_is_throttled() -> list[str]:
    """It was provably not sent, so the repeated call sends it."""
    it, mine = opened()
    wait = waiting(BOOT, mine, command_id="", boot_id="boot-1")

    def too_busy(_: str) -> str:
        raise NotAccepted("too many calls")

    with suppress(NotAccepted):
        send_once(wait, too_busy, mine, it.plain)
    sent = it.does(lambda: send_once(wait, lambda _: "command-1", mine, it.ports))
    return [] if sent == "command-1" else ["a command that was never sent is taken for sent"]


def a_command_is_sent_by_one_who_dies() -> list[str]:
    it, mine = opened()
    wait, sent = waiting(BOOT, mine, command_id="", boot_id="boot-1"), list[str]()

    def dies(_: str) -> str:
        sent.append("command-1")
        raise RuntimeError("its answer is lost")

    for _ in range(2):
        with suppress(RuntimeError):
            send_once(wait, dies, mine, it.plain)
    return [] if len(sent) == 1 else [f"it was sent {len(sent)} times"]


def a_command_of_its_last_boot_waits_for_its_answer() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(waiting(BOOT, mine, command_id="command-0", boot_id="boot-0"))
    wait = waiting(BOOT, mine, command_id="", boot_id="boot-1")
    sent = it.does(lambda: send_once(wait, lambda _: "command-1", mine, it.ports))
    return [] if sent == "command-1" else ["a command to its last boot is taken for one to this"]


def ec2_was_asked_to_end_its_last_boot() -> list[str]:
    return _asks_ec2("EC2 RebootInstances", "boot-0")


def ec2_was_too_busy_to_reboot_it() -> list[str]:
    return _asks_ec2("", "boot-1")


def _asks_ec2(command_id: str, boot_id: str) -> list[str]:
    """After a call that has left this wait."""
    it, mine = opened()
    it.plain.machines.machines[BROKEN] = TEMPLATE  # type: ignore[attr-defined]
    it.plain.waits.save(waiting(BOOT, mine, command_id=command_id, boot_id=boot_id))
    wait = waiting(BOOT, mine, command_id="", boot_id="boot-1")
    it.does(lambda: send_reboot(wait, node(BROKEN, provider=Provider.ec2), mine, it.ports))
    ordered = [what for _, what in it.plain.machines.ordered]  # type: ignore[attr-defined]
    return [] if ordered == [Power.REBOOT] else ["it was not asked to reboot, and its boot is waited for"]


# New machines


def another_incident_has_the_new_machine() -> list[str]:
    it, mine = opened()
    new = node(NEW, open_incident="inc-of-another")
    it.plain.nodes.save(new)
    return ["the node of another incident is its stand-in"] if it.does(lambda: claim_new(mine, new, it.ports)) else []


def another_incident_takes_the_machine_that_was_launched() -> list[str]:
    it, mine = opened()
    it.is_written(state=NodeState.RECOVERING)
    new = node(NEW, provider=Provider.ec2, open_incident="inc-of-another")
    it.plain.nodes.save(new)
    wait = waiting(REPLACEMENT, mine, command_id=NEW, twin=(NEW_MACHINE, NEW))
    it.plain.waits.save(wait)
    it.does(lambda: settle(wait, new, it.ports))
    resumed = it.plain.workflows.resumed  # type: ignore[attr-defined]
    return ["a replacement is done with a node that another incident has"] if resumed else []


def a_machine_that_has_served_is_free() -> list[str]:
    """Its group made it since, and it has rebooted: whose it is was settled when it came up first."""
    it, mine = opened()
    it.is_written(state=NodeState.RECOVERING)
    old = node(NEW, provider=Provider.ec2, past_boots=("boot-0",))
    it.plain.nodes.save(old)
    wait = waiting(REPLACEMENT, mine, line=(group_line("asg"), "1"))
    it.plain.waits.save(wait)
    return ["a node that has served is taken for new"] if it.does(lambda: settle(wait, old, it.ports)) else []


def another_group_makes_a_machine() -> list[str]:
    it = Pool()
    it.replaces()
    it.machines.machines[N] = replace(it.kind, machine_id=N, group="another", launched_at=it.clock())
    it.ports.nodes.save(node(N, provider=Provider.ec2))
    it.replaces(token="again")
    return [] if it.node(N).open_incident is None else ["a machine of another group is taken"]


def ec2_will_not_take_it_from_its_group() -> list[str]:
    return _is_kept(Pool())


def ec2_will_not_make_room_for_its_successor() -> list[str]:
    return _is_kept(Pool(group="", template="lt-1", terminate_first=True))


def _is_kept(it: Pool) -> list[str]:
    def refuses(machine: Machine, how: GiveBack) -> None:
        raise MachineRefused("termination protection is on")

    it.machines.give_back = refuses
    it.replaces()
    told = it.ports.incidents.history(it.incident()).timeline
    return [f"people read: {e.text}" for e in told if "marked unhealthy" in e.text or "terminated" in e.text]


# Attempts


def one_of_two_limits_is_reached() -> list[str]:
    """What the other one has granted is there again."""
    it, mine = opened()
    limit = ACTS.limits[Action.REBOOT]
    for number in range(limit.limit):
        it.plain.attempts.reserve("rack#r1", f"inc-of-another/{number}", limit)
    both = (Reservation(scope=f"node#{BROKEN}", limit=limit), Reservation(scope="rack#r1", limit=limit))
    asks = mine.model_copy(update={"decision": mine.decision.model_copy(update={"reserve": both})})
    it.does(lambda: reserve_attempt(asks, it.ports))
    spent = it.plain.attempts.spent(f"node#{BROKEN}", limit)[limit.group]
    return [f"{spent} attempts are spent on what was never done"] if spent else []


def it_serves_when_its_replacement_is_asked_for() -> list[str]:
    """It holds a slot, and there is an attempt."""
    it = Pool()
    it.ports.nodes.save(replace(it.node(), state=NodeState.HEALTHY))
    it.replaces()
    return [f"{name} was given up, and serves" for name, _ in it.given_back]


def another_has_isolated_it_when_its_reboot_is_asked_for() -> list[str]:
    it, mine = opened()
    it.is_written(state=NodeState.ISOLATED, open_incident="inc-of-another")
    it.plain.pools.claim("demo", BROKEN, 1)
    reserve = (Reservation(scope=f"node#{BROKEN}", limit=ACTS.limits[Action.REBOOT]),)
    decision = mine.decision.model_copy(update={"reserve": reserve})
    it.does(lambda: reboot_node(mine.model_copy(update={"decision": decision, "task_token": "token"}), it.ports))
    sent = it.plain.commands.sent  # type: ignore[attr-defined]
    return [f"{verb} of {name}, which another incident has isolated" for verb, name, _ in sent]


# Ranks


def its_second_rank_is_refused() -> list[str]:
    it = Moment()
    job = replace(JOB, nodes=2)
    it.plain.jobs.save(job)
    run = record_run(replace(job, version=1), [node(BROKEN), node(PEER)], "mine", it.plain)
    starts = it.plain.scheduler.start

    def refuses(job: Any, run: Any, task: Any, environment: Any) -> str:
        if task.rank:
            raise PlacementRefused("RESOURCE:MEMORY")
        return starts(job, run, task, environment)

    it.plain.scheduler.start = refuses  # type: ignore[method-assign]
    with suppress(PlacementRefused):
        start_ranks(replace(job, version=2), run, it.plain, ACTS)
    stopped = it.plain.scheduler.stopped  # type: ignore[attr-defined]
    return [] if stopped else ["its first rank holds its accelerators, and waits for the others for ever"]
