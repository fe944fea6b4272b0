"""Write the email to the owner of a job that its cluster runs by itself, and that a recovery has restarted."""

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Phase
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.lost_work import UNSAVED
from nodeheal.domain.recovery.incident import History
from nodeheal.services.notify.compose import fit_subject, heading
from nodeheal.services.notify.compose_owner import how_it_broke
from nodeheal.services.notify.layout import field, link, paragraph


def compose_task_owner(history: History, task: UnmanagedTask, fault: Fault, execution: str) -> Notification:
    """It was restarted: why, and where it goes on. `execution`: the recovery's address in the console, or empty.

    It has no `job_id`, so that the operators are told once of an address that is not reached: many people may write it
    into a job.
    """
    incident = history.incident
    body = [
        *paragraph(
            f"Your job was stopped as a whole, and is started again: {task.name}. {how_it_broke(history, fault)}"
        ),
        "",
        *field("Needed", "nothing. Please do not submit it again: it would run twice."),
        "",
        *field("Goes on", "on other nodes, by its own controller, as soon as there is room for it."),
        *field("Lost", f"{UNSAVED}. Its program goes on from the last one that it finds."),
        *field("Why you", "the job's annotation owner-email names you."),
        *(link("The recovery, step by step", execution) if execution else field("Reference", incident.incident_id)),
    ]
    return Notification(
        key=f"owner/{task.task_id}/{incident.incident_id}/restarted",
        subject=fit_subject(f"{heading(history)} restarted: {task.name}"),
        body="\n".join(body),
        severity="INFO",
        pool=incident.pool,
        phase=Phase.RUNS_AGAIN,
        owner=task.owner_email,
    )
