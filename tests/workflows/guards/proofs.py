"""The guards of tests/workflows/scenarios/proofs.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import gang, isolate
from nodeheal.services import steps
from nodeheal.services.intake import ingest
from nodeheal.services.jobs import job_nodes, see_directory
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import proofs as when

GUARDS = (
    # Of nodes
    Guard(
        "that a replacement node has passed lately",
        job_nodes.replacement_nodes,
        "node.node_id not in due",
        when.a_free_node_has_passed_nothing,
        "True",
    ),
    Guard(
        "that a replacement node has no other job",
        job_nodes._is_free_for,
        "own.is_available(ports.clock())",
        when.a_node_has_another_job,
        "True",
    ),
    Guard(
        "that a replacement node is free still",
        job_nodes.claim_replacement_nodes,
        "not _is_free_for(job, node, ports)",
        when.another_job_has_taken_what_the_list_still_shows,
    ),
    Guard(
        "whose node is freed",
        steps.clear_if_owner,
        "any((getattr(node, name) != whose for name, whose in held.items()))",
        when.another_job_runs_where_this_one_was,
    ),
    Guard(
        "that all nodes see one directory",
        see_directory.see_directory,
        "found.verdict is not Verdict.FAILED",
        when.a_directory_is_on_a_disk_of_its_own,
        "True",
    ),
    Guard(
        "that a directory is looked at twice",
        see_directory.see_directory,
        "request.searches == _SECOND",
        when.a_directory_is_seen_late,
    ),
    # Of steps
    Guard(
        "that a drain has held",
        isolate._observe,
        "record.is_drained",
        when.its_drain_breaks_off,
        "True",
    ),
    Guard(
        "that all ranks have stopped by the deadline",
        isolate._observe,
        "not left",
        when.its_gang_has_not_stopped_by_the_deadline,
        "True",
    ),
    Guard(
        "that a rank has stopped",
        gang.ranks_left,
        "not task.has_stopped",
        when.no_rank_has_stopped_yet,
    ),
    Guard(
        "that a rank runs",
        gang.has_started,
        "task.status == 'RUNNING' or task.has_succeeded",
        when.no_rank_runs_yet,
        "True",
    ),
    # In line
    Guard(
        "that good news calls nobody out of line",
        ingest._take_good_news,
        "not _is_in_line(history)",
        when.it_is_well_while_it_stands_in_line,
        "True",
    ),
    Guard(
        "that a repeat calls nobody out of line",
        ingest._is_news,
        "not _is_in_line(history)",
        when.it_repeats_while_it_stands_in_line,
        "True",
    ),
)
