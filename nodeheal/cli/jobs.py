"""`nodeheal jobs`: a training job from its file to its end."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from nodeheal.api import file_views, job_list, job_queries, submission_queries
from nodeheal.api import job_file as api_job_file
from nodeheal.cli import (
    cluster_views,
    complete,
    connect,
    job_file,
    job_log,
    job_submitted,
    job_view,
    job_wait,
    kubernetes,
    last_lines,
    slurm,
    slurm_submit,
)
from nodeheal.cli import job_list as job_lines
from nodeheal.cli.complete import PoolArgument
from nodeheal.cli.connect import AsJson, Table, Why, clearly
from nodeheal.cli.say import (
    BAD_INPUT,
    After,
    Form,
    Limit,
    Output,
    form_of,
    page_of,
    refuse,
    say,
    say_data,
    say_json,
    say_more,
)
from nodeheal.contract import acts, names, schemas
from nodeheal.contract.vocabulary import JobState, SchedulerKind

app = typer.Typer(no_args_is_help=True, help="Training jobs: submitted once, kept running.")

File = Annotated[Path, typer.Argument(metavar="JOB.YAML", help="the job, as docs/jobs.md describes it")]
JobName = Annotated[str, typer.Argument(metavar="NAME", help="the job's name", autocompletion=complete.jobs)]
Timeout = Annotated[str | None, typer.Option(help="at most so long: 90s, 30m, 2h or 1d")]


@app.command()
def validate(file: File, as_json: AsJson = False) -> None:
    """Check a job file: line and field of everything that is wrong. AWS is not asked."""
    try:
        spec = api_job_file.parse_job_file(job_file.bytes_of(file))
    except api_job_file.JobFileRefused as refused:
        if not as_json:
            refuse(*(f"{file}:{complaint.line}: {complaint}" for complaint in refused.complaints))
        errors = tuple(file_views.JobFileError(line=c.line, field=c.field, message=c.why) for c in refused.complaints)
        say_json(file_views.JobFileCheck(file=str(file), is_valid=False, errors=errors, warnings=()))
        raise typer.Exit(BAD_INPUT) from None
    doubts = submission_queries.file_doubts(spec)
    if as_json:
        say_json(file_views.JobFileCheck(file=str(file), is_valid=True, errors=(), warnings=tuple(doubts)))
        return
    say(f"{file}: valid, job {spec.name}")
    job_submitted.warn(doubts)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the file, for editors: `nodeheal jobs schema > job.schema.json`."""
    sys.stdout.write((schemas.FOLDER / "job.json").read_text("utf-8"))


@app.command()
def submit(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="the job (docs/jobs.md); with --slurm a batch script")],
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="with --slurm, after --: sbatch options, script, its arguments"),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="check the script and submit it with sbatch, as you")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="check the job and show its plan; submit nothing")] = False,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="a job of this name is left as it is, and no error")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="wait until it ends, as `nodeheal jobs wait`")] = False,
    table: Table = names.TABLE,
    as_json: AsJson = False,
) -> None:
    """Check a job, record it and start it. From then on nodeheal keeps it running.

    With --slurm it is Slurm's job: nodeheal has Slurm restart it when its node breaks. This asks AWS for nothing.

    After -- stands what would stand after sbatch: its options, each with its value in one word, then the batch script,
    then the script's own arguments.

    nodeheal jobs submit --slurm -- --nodes=2 train.sbatch --steps 20000
    """
    if slurm:
        typed = {"--idempotent": idempotent, "--wait": wait, "--table": _is_typed(context, "table")}
        _refuse_options("with --slurm", typed)

        slurm_submit.submit_batch([file, *(more or ())], dry_run=dry_run, as_json=as_json)
        return
    _refuse_options("without --slurm", {" ".join(more or ()): bool(more)})
    if wait and as_json:
        refuse("--json: not with --wait, whose lines are for people; ask `nodeheal jobs show NAME --json` afterwards")

    spec = job_file.read_job_file(Path(file))
    with clearly():
        world = connect.ports(table)
        connect.known_pool(spec.pool, world)
        if dry_run:
            plan = submission_queries.planned(spec, world, connect.policy(), is_idempotent=idempotent)
            if as_json:
                say_json(plan)
            else:
                job_submitted.say_planned(spec, plan)
            return
        answer = connect.do(acts.SubmitJob(spec=spec, is_idempotent=idempotent), acts.JobRecorded)
        job = submission_queries.submitted(spec, answer, world, connect.is_confirmed)
    if as_json:
        say_json(job)
    else:
        job_submitted.say_submitted(job)
    if wait:
        job_wait.follow(job.job, world, None)


def _is_typed(context: typer.Context, option: str) -> bool:
    """Whether it stands in the command, and not only in the environment."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_options(where: str, given: Mapping[str, bool]) -> None:
    """Refuse what does not apply, by its name."""
    for option, is_given in given.items():
        if is_given:
            refuse(f"{option}: not {where}")


@app.command("list")
def list_all(
    pool: PoolArgument = None,
    live: Annotated[bool, typer.Option("--live", help="only jobs that are not over")] = False,
    limit: Limit = None,
    after: After = "",
    table: Table = names.TABLE,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show jobs, those that are over last, together with those that Slurm and Kubernetes run on these pools' clusters.

    The exit code is 6 where a cluster's jobs are not known: the list then says of which.

    With --limit and --after the rows are nodeheal's own jobs; the others stand beside the first ones.
    """
    form = form_of(output, as_json)
    page = page_of(limit, after, form)
    with clearly():
        world = connect.ports(table)
        pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
        view = job_list.jobs(pools, world, live_only=live, page=page)
        reports = slurm.reports_of([] if after else slurm.clusters_in(pools, world))
        on_kubernetes = kubernetes.jobs_of([] if after else slurm.clusters_in(pools, world, SchedulerKind.KUBERNETES))
        entries = [job for job in job_lines.listed(view.rows, reports, on_kubernetes) if not (live and job.is_over)]
    unknown = {SchedulerKind.SLURM: reports.unknown, SchedulerKind.KUBERNETES: on_kubernetes.unknown}
    rows = [*(job.row for job in entries), *job_lines.unknown_rows(unknown)]
    if form not in (Form.json, Form.yaml):
        job_lines.say_jobs(entries, unknown, world.clock(), is_wide=form is Form.wide)
        say_more(view.next)
    elif page.is_part:
        beside = {kind: tuple(row for row in rows if row.scheduler is kind) for kind in unknown}
        of_slurm, of_kubernetes = beside[SchedulerKind.SLURM], beside[SchedulerKind.KUBERNETES]
        say_data(cluster_views.JobPage(**dict(view), slurm=of_slurm, kubernetes=of_kubernetes), form)
    else:
        say_data(rows, form)
    if any(unknown.values()):
        raise typer.Exit(job_lines.INCOMPLETE)


@app.command()
def top(pool: PoolArgument = None, table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show how far each active job has come: its step, its pace, and the time that is left.

    A job shows its steps in $NODEHEAL_PROGRESS_FILE, and its file says with `steps` how many it takes in all.
    """
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
        rows, now = job_list.jobs(pools, world, live_only=True).rows, world.clock()
    if form in (Form.json, Form.yaml):
        say_data(rows, form)
    else:
        job_lines.say_top(rows, now, is_wide=form is Form.wide)


@app.command()
def show(name: JobName, table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show one job: its state and why, where it runs, how its runs ended, and how many restarts are left."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        job = slurm.our_job(name, world)
        view = job_queries.linked(
            job_queries.job(name, world, lambda: connect.policy_copy(table), connect.if_allowed),
            connect.job_execution_url(name, job.submission) if job.submission else "",
            connect.execution_url,
            owner_confirmed=connect.owners().is_confirmed(job.owner) if job.owner else None,
        )
    if form in (Form.json, Form.yaml):
        say_data(view, form)
        return
    for line in job_view.as_text(view, last_lines.last_lines(job, world.jobs.get_run(name, view.run), world)):
        say(line)


@app.command()
def stop(name: JobName, why: Why, table: Table = names.TABLE) -> None:
    """Stop a job: each rank gets SIGTERM and its grace period. `jobs restart` runs it again.

    A job that has failed does not run. Stopping it says that it stays so: `nodeheal status` no longer shows it.
    """
    reason = connect.reason(why)
    with clearly():
        world = connect.ports(table)
        job = slurm.our_job(name, world)
        connect.do(acts.StopJob(job=job.job_id, why=reason), acts.JobRecorded)
        if job.is_over:
            given_up = "; given up: `nodeheal status` no longer shows it" if job.state is JobState.FAILED else ""
            say(f"{name} is {job.state} already: {job.summary}{given_up}")
            return
    say(f"{name} is being stopped; `nodeheal jobs wait {name}` returns when nothing of it runs")


@app.command()
def restart(name: JobName, table: Table = names.TABLE) -> None:
    """Submit a job that is over again. It goes on from its newest complete checkpoint, if one is found."""
    with clearly():
        job = slurm.our_job(name, connect.ports(table))
        answer = connect.do(acts.RestartJob(job=job.job_id), acts.JobRecorded)
    say(f"{name} is submitted again (submission {answer.submission})")


@app.command()
def wait(name: JobName, timeout: Timeout = None, table: Table = names.TABLE) -> None:
    """Wait until a job ends. Exit code 0: completed, 3: failed, 4: cancelled, 5: the time is up."""
    seconds = job_wait.seconds_or_none(timeout)
    with clearly():
        world = connect.ports(table)
    job_wait.follow(name, world, seconds)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the job's name")],
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="go on until the job ends, from run to run")
    ] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="only this rank")] = None,
    run: Annotated[int | None, typer.Option(min=1, help="this run, and not the newest")] = None,
    table: Table = names.TABLE,
) -> None:
    """Print what the ranks have written, from CloudWatch Logs."""
    job_log.say_logs(name, rank, run, table, is_followed=is_followed)
