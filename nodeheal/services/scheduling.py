"""What a scheduler's traits mean for a recovery. Nothing else in services and operations reads them."""

from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy_models import PoolPolicy
from nodeheal.ports.scheduler import Scheduler


def may_stop_workloads(scheduler: Scheduler, rules: PoolPolicy) -> bool:
    """Whether workloads of others are stopped on an isolated node, where their owners have agreed."""
    return rules.stops_other_tasks or scheduler.traits.owner_consents_alone


def why_work_unknown(scheduler: Scheduler) -> str:
    """Returns why nothing is done to a node that would disturb work on it. Empty: what runs there is known."""
    return "" if scheduler.workloads is not None else f"nodeheal cannot see what {scheduler.kind} runs on the node"


def restarts_stopped(scheduler: Scheduler) -> bool:
    """Whether the scheduler starts again what was stopped, so that nodeheal starts nothing for it."""
    return scheduler.traits.restarts_stopped


def may_keep_idle(scheduler: Scheduler) -> bool:
    """Whether a node in service stays idle until nodeheal gives it work, so that it may be a spare."""
    return not scheduler.traits.fills_idle_nodes


def checks_new_nodes(scheduler: Scheduler) -> bool:
    """Whether the scheduler has a new node checked, so that nodeheal diagnoses none."""
    return scheduler.traits.checks_new_nodes


def records_holder(scheduler: Scheduler) -> bool:
    """Whether a look at a node that nodeheal did not drain shows who keeps it out of service."""
    return scheduler.traits.records_holder


def is_looked_at_before_drain(scheduler: Scheduler) -> bool:
    """Whether a drain would take a person's node, so that its placement is read first."""
    return not scheduler.traits.drain_keeps_holder


def takes_commands(node: Node, scheduler: Scheduler) -> bool:
    """Whether a command reaches the node: no service of AWS's takes one for a node of HyperPod."""
    return node.provider is not Provider.hyperpod or scheduler.traits.runs_commands


def is_behind_a_machine(scheduler: Scheduler) -> bool:
    """Whether a missing answer may last, so that the incident says it."""
    return scheduler.traits.is_behind_a_machine


def drains_at_once(scheduler: Scheduler) -> int | None:
    """How many drains of one cluster may be under way; None: any number."""
    return scheduler.traits.drains_at_once
