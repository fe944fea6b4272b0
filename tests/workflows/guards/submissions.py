"""The guards of tests/workflows/scenarios/submissions.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import await_nodes, launch_job, watch_gang
from nodeheal.services import saving, steps
from nodeheal.services.jobs import (
    attribute_failure,
    choose_nodes,
    job_nodes,
    job_replacement_node,
    job_steps,
    judge_checks,
    start_gang,
)
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import submissions as when

GUARDS = (
    # Until it starts
    Guard(
        "the line for nodes",
        choose_nodes.choose_nodes,
        "waits_before(job, ports)",
        when.another_job_stands_in_line,
        "''",
    ),
    Guard(
        "that nodes became free before the wait",
        await_nodes._start,
        "look_for_nodes(job, ports, world.policy).nodes and (not waits_before(job, ports))",
        when.a_node_becomes_free_before_it_waits_for_one,
    ),
    Guard(
        "that a person wants it stopped, at each step",
        job_steps.stop_if_wanted,
        "not job.stop_wanted",
        when.a_person_stops_it_before_it_starts,
        "True",
    ),
    Guard(
        "that a person wants it stopped, at its launch",
        launch_job._start,
        "stopped is not None",
        when.a_person_stops_it_before_its_launch,
    ),
    Guard(
        "that a person wants it stopped, when it has failed",
        attribute_failure.attribute_failure,
        "found is None",
        when.a_person_stops_it_when_it_has_failed,
        "True",
    ),
    Guard(
        "that it runs after all",
        attribute_failure._attribute,
        "run.is_running",
        when.its_last_rank_runs_when_it_was_waited_for_long_enough,
    ),
    Guard(
        "that a wish is on record",
        saving.save_changed,
        "save(changed)",
        when.a_job_is_written_while_a_person_stops_it,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "that nodes were given the time to answer",
        judge_checks.judge_checks,
        "_broke_off(request, job, ports)",
        when.its_checks_break_off,
    ),
    Guard(
        "which boot has passed",
        job_nodes.job_checks_due,
        "max(since, n.booted_at)",
        when.a_node_has_rebooted_since_it_passed,
        "since",
    ),
    Guard(
        "whose claim is let go",
        steps.clear_if_owner,
        "any((getattr(node, name) != whose for name, whose in held.items()))",
        when.another_job_has_a_node_that_is_let_go,
    ),
    Guard(
        "that what was just claimed is kept",
        job_nodes.release_claims,
        "name not in but",
        when.it_claims_what_it_wants,
        "True",
    ),
    Guard(
        "the version of a run that is given up",
        saving.save_changed,
        "save(changed)",
        when.a_run_that_is_given_up_is_written_meanwhile,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "the version of a run that is asked after",
        saving.save_changed,
        "save(changed)",
        when.a_run_that_is_asked_after_is_written_meanwhile,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "which ranks are looked for",
        start_gang._as_found,
        "t.task_id or t.has_stopped",
        when.a_rank_is_stopped_before_another_is_looked_for,
    ),
    # When it fails
    Guard(
        "how often a program may fail",
        attribute_failure._open_incident,
        "not granted",
        when.its_program_fails_again,
    ),
    Guard(
        "that it cannot run",
        attribute_failure._explain,
        "broke is not None and broke.never_ran",
        when.its_program_cannot_run,
    ),
    Guard(
        "that it waits for the end of a pause",
        watch_gang._observe,
        "facts.held",
        when.its_pool_is_paused_when_it_fails,
        nth=1,
    ),
    # Where it went on meanwhile
    Guard(
        "whose replacement node is let go at the end",
        steps.clear_if_owner,
        "any((getattr(node, name) != whose for name, whose in held.items()))",
        when.its_replacement_node_is_anothers_by_the_end,
    ),
    Guard(
        "that it has not claimed anew",
        job_replacement_node.let_go_of_claims,
        "job.state is not JobState.SUBMITTED",
        when.it_is_submitted_again_by_the_end,
        "True",
    ),
    Guard(
        "which boot of a replacement node has passed",
        job_replacement_node._proven,
        "(passed.node_id, passed.boot_id) == (node.node_id, node.boot_id)",
        when.its_replacement_node_reboots_after_its_proof,
        "True",
    ),
)
