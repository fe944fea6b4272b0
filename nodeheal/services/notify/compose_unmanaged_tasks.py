"""What an email to operators says of the tasks of others on the node: which were left, which ended, which run again."""

from nodeheal.contract.vocabulary import Action, Outcome
from nodeheal.domain.fleet.unmanaged_tasks import restart_reports, tasks_gone, tasks_left_running
from nodeheal.domain.recovery.progress import Progress, TriedStep
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.verbs import VERBS
from nodeheal.services.notify.layout import field

# Steps that may have ended the tasks. A machine that was stopped and could not be started has ended them too.
_MAY_HAVE_HAPPENED = (Outcome.TIMED_OUT, Outcome.UNKNOWN)


def fate_of_unmanaged_tasks(situation: Situation, body: str) -> list[str]:
    """A line for each, but for those that `body` has already. Empty where there were none."""
    timeline = situation.history.timeline
    left, step = tasks_left_running(timeline), _that_ended_them(situation.progress)
    lines = [f"task {unmanaged_task} {_fate(step)}" for unmanaged_task in left]
    lines += [*tasks_gone(timeline), *restart_reports(timeline)]
    return [line for text in lines if text not in body for line in field("Others", f"{text}.")]


def needed_for_unmanaged_tasks(situation: Situation) -> str:
    """What a human has to do for them; empty: nothing."""
    if not tasks_left_running(situation.history.timeline) or _that_ended_them(situation.progress) is None:
        return ""
    return "tell the owners of the tasks of others that ended (above) to start them again: nodeheal does not."


def _fate(step: TriedStep | None) -> str:
    if step is None:
        return "was left to run, and nodeheal has done nothing that would end it"
    ended = "ended" if step.result.outcome is Outcome.DONE else "may have ended"
    return f"was left to run and {ended} with the {step.name}; its owner must start it again"


def _that_ended_them(progress: Progress) -> TriedStep | None:
    """The first that was done for sure, else the first that may have been."""
    ends = [step for step in progress.tried if _ends_all(step, progress)]
    sure = [step for step in ends if step.result.outcome is Outcome.DONE]
    perhaps = [step for step in ends if _may_have_happened(step)]
    return next(iter([*sure, *perhaps]), None)


def _ends_all(step: TriedStep, progress: Progress) -> bool:
    """Whether it ends whatever runs on the node. A spare takes the job over, and leaves the broken node running."""
    if VERBS[step.action].keeps_boot:
        return False
    return step.action is not Action.REPLACE or (progress.has_new_machine and not progress.is_broken_one_left)


def _may_have_happened(step: TriedStep) -> bool:
    is_half = step.action is Action.STOP_START and step.result.outcome is Outcome.FAILED
    return is_half or step.result.outcome in _MAY_HAVE_HAPPENED
