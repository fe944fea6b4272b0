"""`nodeheal reconcile`: what a person does after the table of records was restored."""

import typer

from nodeheal.cli import connect
from nodeheal.cli.connect import AsJson, clearly
from nodeheal.cli.node_acts import DryRun, WhyOrDryRun, Yes, given_reason, goes_on
from nodeheal.cli.say import say, say_json
from nodeheal.contract import acts

NOT_OVER = 1


def reconcile(why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Set the records right after their table was restored: by the scheduler, EC2 and the executions.

    It exits with 1 while something is left: run it again then. Only when nothing is, nodeheal acts again.
    """
    reason = given_reason(why, dry_run=dry_run)
    with clearly():
        plan = connect.do(acts.Reconcile(why=reason, is_to_apply=False), acts.RecordsReconciled)
    if dry_run and as_json:
        say_json(plan)
        return
    if plan.lost_since is None:
        if as_json:
            say_json(plan)
        else:
            say("the records are whole: nothing was done")
        return
    lines = [*_in_words(plan), "until they are set right by this command, nodeheal does nothing"]
    if not goes_on(lines, dry_run=dry_run, yes=yes or as_json):
        return
    with clearly():
        done = connect.do(acts.Reconcile(why=reason, is_to_apply=True), acts.RecordsReconciled)
    if as_json:
        say_json(done)
    else:
        say(*_in_words(done), *_how_it_ended(done))
    if not done.is_over:
        raise typer.Exit(NOT_OVER)


def _in_words(answer: "acts.RecordsReconciled") -> list[str]:
    period = f"{answer.lost_since:%Y-%m-%d %H:%M:%S} UTC until {answer.lost_until:%Y-%m-%d %H:%M:%S} UTC"
    return [
        f"the records do not know what was done from {period}",
        *(f"{c.about}: {c.text}" for c in answer.corrections),
        *([] if answer.corrections else ["nothing on record contradicts what is the case"]),
    ]


def _how_it_ended(answer: "acts.RecordsReconciled") -> list[str]:
    if answer.is_over:
        return ["the records are set right: nodeheal acts again"]
    left = [f"  {rank}" for rank in answer.waits_for] or ["  others have written the records just now"]
    return ["nodeheal does nothing yet; run the command again when these have ended:", *left]
