"""The guards of tests/workflows/scenarios/observations.py: where each stands, and what goes wrong without it."""

from nodeheal.adapters.memory.stores import MemoryJobNotes, MemoryNodeStore
from nodeheal.adapters.memory.world import MemoryScheduler, MemoryWorkflows
from nodeheal.domain.faults import correlation
from nodeheal.services.intake import ingest
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import observations as when

_KIND = "(s.node_id, s.family, s.code, s.component) == kind"

GUARDS = (
    # What is kept
    Guard(
        "that a fault was seen before",
        MemoryNodeStore.record,
        "key in self.recorded",
        when.its_fault_is_told_again_when_its_job_is_over,
    ),
    Guard(
        "that what a node says is old",
        MemoryNodeStore.record,
        "not note",
        when.an_old_line_comes_late,
        "True",
    ),
    Guard(
        "that it is old to its neighbours, too",
        MemoryNodeStore.record,
        "not note",
        when.old_lines_come_late_in_their_hundreds,
        "True",
    ),
    Guard(
        "that what others show is new",
        MemoryNodeStore.record,
        "not note",
        when.its_neighbour_fails,
    ),
    Guard(
        "which reboots were asked for",
        correlation.common_cause,
        "s.code in (NEW_NODE, OPERATOR_REQUEST)",
        when.operators_ask_for_many_reboots,
    ),
    # What a check has found
    Guard(
        "which job's checks count",
        MemoryJobNotes.answers,
        "key[0] == job_id",
        when.a_node_has_not_answered_a_job_of_a_name_alike,
        "True",
    ),
    # What was started
    Guard(
        "which ranks run",
        MemoryScheduler.find_ranks,
        "name not in self.stopped",
        when.its_rank_was_stopped_before_it_was_noted,
        "True",
    ),
    Guard(
        "that a job's workflow has begun",
        MemoryWorkflows.run_job,
        "(job_id, submission) not in self.jobs_started",
        when.a_jobs_workflow_begins_late,
        "True",
    ),
    Guard(
        "which jobs live",
        MemoryJobNotes.in_pool,
        "not (live_only and job.job_id in self.store.listed_as_over)",
        when.a_job_is_over_when_the_sweep_passes,
        "True",
    ),
    # What was decided on, and is told again
    Guard(
        "that a fault was decided on",
        ingest._join,
        "_is_unseen(history)",
        when.its_fault_is_told_again_while_it_waits,
        "True",
    ),
    Guard(
        "that good news was decided on",
        ingest._take_good_news,
        "_is_unseen(history)",
        when.its_good_news_is_told_again_while_it_waits,
        "True",
    ),
    # What was dealt with on this boot, and comes again
    Guard(
        "that a pool acts, for a repeat",
        ingest._is_open_again,
        "may_act",
        when.it_repeats_while_its_pool_is_only_observed,
        "True",
        nth=1,
    ),
    Guard(
        "that a node is opted out, for a repeat",
        ingest._is_open_again,
        "may_act",
        when.it_repeats_while_it_is_opted_out,
        "True",
        nth=2,
    ),
    Guard(
        "that a pause lasts, for what may climb",
        ingest._is_open_again,
        "may_act",
        when.it_repeats_what_may_climb_while_its_pool_is_paused,
        "True",
        nth=4,
    ),
    Guard(
        "how often a trend has come",
        ingest._is_open_again,
        "episodes([since, *times, event.observed_at], rules.window_seconds) >= rules.repeats",
        when.its_trend_has_come_twice,
        "True",
    ),
    Guard(
        "that a trend is told, whatever may be done",
        ingest._is_open_again,
        "not climbs",
        when.its_trend_comes_again_and_again_where_nothing_may_be_done,
        "True",
        nth=1,
    ),
    Guard("what it is that has come", ingest._is_open_again, _KIND, when.other_faults_come_between, "True"),
    Guard("since when it is counted", ingest._is_open_again, "s.at > since", when.its_old_reports_come_late, "True"),
    Guard(
        "what may climb",
        ingest._is_open_again,
        "not climbs",
        when.a_fault_that_does_not_climb_comes_again_and_again,
        nth=2,
    ),
)
