"""The guards of tests/workflows/scenarios/news.py: where each stands, and what goes wrong without it."""

from nodeheal.services import saving
from nodeheal.services.intake import hangs, heartbeats, ingest, liveness, take_signal
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import news as when

GUARDS = (
    # Beats and silence
    Guard(
        "whose beats tell of boots",
        heartbeats.record_missed_boots,
        "node_liveness.state in ABSENT",
        when.many_beat_that_never_announced_themselves,
    ),
    Guard(
        "which beats tell of a boot",
        heartbeats.record_missed_boots,
        "heartbeat.boot_id == node_liveness.boot_id",
        when.many_beat_whose_boots_are_known,
    ),
    Guard(
        "that a boot was announced",
        heartbeats._record_boot,
        "known.boot_id == node.boot_id",
        when.a_boot_is_announced_while_the_sweep_looks,
    ),
    Guard(
        "that a node is silent still",
        liveness._still_silent,
        "is_silent(liveness_of(known).with_heartbeat(heartbeat, now), policy.silence, now)",
        when.a_node_is_heard_while_the_silent_are_looked_at,
        "True",
    ),
    Guard(
        "which gang vouches for a node",
        liveness._ask_gang,
        "all((task.node_id != node.node_id or task.has_stopped for task in run.tasks))",
        when.the_gang_has_left_a_silent_node,
    ),
    Guard(
        "that somebody hears the gang",
        liveness._ask_gang,
        "any((_is_heard(task.node_id, heartbeats, ports, policy) for task in others))",
        when.the_whole_gang_is_silent,
        "True",
    ),
    # What others say
    Guard(
        "that something weak opens nothing",
        take_signal.take_draft,
        "draft.is_advisory and node.open_incident is None",
        when.somebody_says_something_advisory,
    ),
    Guard(
        "which word is the newest",
        take_signal._is_newest,
        "known.signal_versions.get(draft.topic, version) > version",
        when.something_older_is_said_later,
    ),
    Guard(
        "that nobody needs a machine that goes",
        take_signal._take_departure,
        "is_past or _is_needed(node, ports)",
        when.a_machine_goes_that_nobody_needs,
        "True",
    ),
    Guard(
        "that a machine is gone for good",
        take_signal._take_departure,
        "draft.subcode == TERMINATED",
        when.a_machine_is_stopped_that_nobody_needs,
        "True",
    ),
    Guard(
        "who needs a machine that goes",
        take_signal._take_departure,
        "_is_needed(node, ports)",
        when.a_machine_goes_under_a_rank,
    ),
    Guard(
        "that a machine may go",
        take_signal._take_departure,
        "node.state in OUT_OF_SERVICE and (not is_past)",
        when.a_machine_goes_that_is_being_recovered,
    ),
    Guard(
        "the version of a node whose machine goes",
        saving.save_changed,
        "save(changed)",
        when.a_node_is_written_while_its_machine_goes,
        taken_for_saved("save(changed)"),
    ),
    # Hangs
    Guard(
        "which run hangs",
        hangs.why_not_of_this_run,
        "job is not None and run and (run != str(job.current_run))",
        when.an_older_run_is_said_to_hang,
    ),
    Guard(
        "whose run hangs",
        hangs.why_not_of_this_run,
        "node.job_id is not None and node.job_id != job_id",
        when.a_job_is_said_to_hang_where_another_one_runs,
    ),
    Guard(
        "one incident for a run that hangs",
        ingest._take_fault,
        "joined(event, ports)",
        when.two_nodes_say_that_their_run_hangs,
        "None",
    ),
    # What is said again
    Guard(
        "that what is observed is told once",
        ingest._is_open_again,
        "policy.pool(node.pool).mode_of(meaning.ladder[0]) is not Mode.observe",
        when.it_repeats_while_it_is_observed,
        "True",
    ),
    Guard(
        "that what is opted out is told once",
        ingest._is_open_again,
        "not policy.why_only_observe(node.node_id, node.pool, ports.clock())",
        when.it_repeats_while_it_is_opted_out,
        "True",
    ),
    Guard(
        "that what is paused is told once",
        ingest._is_open_again,
        "not _is_paused(node, ports)",
        when.it_repeats_while_its_pool_is_paused,
        "True",
    ),
)
