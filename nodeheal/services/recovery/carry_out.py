"""Carries out effects in their order: those of a turn and those of an ending, for which functions differ in rights."""

from collections.abc import Iterable
from typing import assert_never

from nodeheal.contract.names import INCIDENT_CLOSED, INCIDENT_ESCALATED, INCIDENT_WAITING
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.faults.correlation import is_dropped_by_reset
from nodeheal.domain.operation import job_owner
from nodeheal.domain.recovery import effects
from nodeheal.domain.recovery.effects import EndingEffect, TurnEffect
from nodeheal.domain.recovery.ending import left_by_incident
from nodeheal.domain.recovery.situation import Situation
from nodeheal.operations.engine import reconcile_all
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import call_next_job
from nodeheal.services.jobs.job_replacement_node import release_candidates, release_claims_of_move
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.notify.compose import compose
from nodeheal.services.notify.compose_dropped import compose_dropped
from nodeheal.services.notify.compose_waiting import compose_waiting
from nodeheal.services.notify.notify_job_owner import (
    notify_owner_of_ending,
    notify_owner_of_step,
    notify_owner_of_wait,
    notify_owners_of_tasks,
)
from nodeheal.services.notify.read_aftermath import read_aftermath
from nodeheal.services.operators.operator_guardrails import trip_breaker
from nodeheal.services.recovery.new_node_places import free_place
from nodeheal.services.recovery.queue import wake_for_free_slots
from nodeheal.services.recovery.wait_for_news import bring_news
from nodeheal.services.saving import change_node, node_of


def carry_out_turn(todo: Iterable[TurnEffect], situation: Situation, decision: Decision, ports: Ports) -> None:
    """Do what a turn's decision asks for, in order. A call that broke off anywhere may be repeated as a whole.

    Raises NotAccepted where the turn is decided already or the incident is a human's, or where a record is being
    written by others; NotFound for an unknown node.
    """
    for effect in todo:
        _do_for_turn(effect, situation, decision, ports)


def carry_out_ending(todo: Iterable[EndingEffect], situation: Situation, decision: Decision, ports: Ports) -> None:
    """Do what an incident's end asks for, in order. A call that broke off anywhere may be repeated as a whole.

    Raises NotAccepted where a record is being written by others, NotFound for an unknown node.
    """
    for effect in todo:
        _do_for_ending(effect, situation, decision, ports)


def _do_for_turn(effect: TurnEffect, situation: Situation, decision: Decision, ports: Ports) -> None:
    history = situation.history
    match effect:
        case effects.NotifyOwnerOfStep(result):
            notify_owner_of_step(situation, result, ports)
        case effects.NotifyTaskOwners(tasks):
            notify_owners_of_tasks(situation, tasks, ports)
        case effects.ReleaseCandidates():
            release_candidates(history, situation.progress.replacement_node, ports)
        case effects.TripBreaker(why):
            trip_breaker(history.context.pool.name, why, ports, history.context.pool)
        case effects.NotifyOwnerOfWait(due):
            notify_owner_of_wait(situation, decision, due, ports)
        case effects.RecordTurn(head, entries):
            if not ports.incidents.advance(head, entries):
                raise NotAccepted(f"turn {head.turn - 1} of {head.incident_id} is decided already, or it is a human's")
        case effects.PageWait():
            waiting = compose_waiting(history, decision, ports.clock(), ports.console_links)
            if waiting is not None:
                ports.notifier.announce(INCIDENT_WAITING, waiting)
        case _:
            assert_never(effect)


def _do_for_ending(effect: EndingEffect, situation: Situation, decision: Decision, ports: Ports) -> None:
    history, incident = situation.history, situation.history.incident
    match effect:
        case effects.RecordEnding(head):
            ports.incidents.finish(head)
        case effects.ReleaseNode(node_id):
            now = ports.clock()
            change_node(node_id, ports, lambda node: left_by_incident(node, situation, decision, now))
        case effects.ReleaseCandidates():
            release_candidates(history, situation.progress.replacement_node, ports)
        case effects.ReleaseClaims():
            release_claims_of_move(history, ports)
        case effects.FreePlace():
            free_place(incident, ports)
        case effects.WakeForFreeSlots(pool):
            wake_for_free_slots(pool, ports, situation.policy)
        case effects.WakeIncidentsOfJob():
            _wake_incidents_of_job(incident.job_id, incident.incident_id, ports)
        case effects.ObserveJob(job_id):
            reconcile_all(job_owner(job_id), ports)
        case effects.CallNextJob(pool):
            call_next_job(pool, ports)
        case effects.AnnounceEnding():
            _announce_ending(situation, decision, ports)
        case effects.NotifyOwnerOfEnding():
            notify_owner_of_ending(situation, decision, ports)
        case effects.NotifyTaskOwners(tasks):
            notify_owners_of_tasks(situation, tasks, ports)
        case _:
            assert_never(effect)


def _wake_incidents_of_job(job_id: str | None, incident_id: str, ports: Ports) -> None:
    _, run = current_run(job_id, ports)  # again: it may have ended since the situation was read
    if run is None or not run.has_ended:
        return
    for task in run.tasks:
        node = ports.nodes.get(task.node_id)
        if node is not None and node.open_incident not in (None, incident_id):
            bring_news(str(node.open_incident), ports)


def _announce_ending(situation: Situation, decision: Decision, ports: Ports) -> None:
    history, links = situation.history, ports.console_links
    node = node_of(history.incident.node_id, ports)
    detail_type = INCIDENT_ESCALATED if decision.ending is Ending.HANDED_TO_A_HUMAN else INCIDENT_CLOSED
    if is_dropped_by_reset(decision.page_key):
        mail = compose_dropped(history, decision, ports.pools.get(node.pool), links)
    else:
        mail = compose(situation, decision, node, links, read_aftermath(situation, decision, ports))
    ports.notifier.announce(detail_type, mail)
