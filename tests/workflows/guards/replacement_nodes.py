"""The guards of tests/workflows/scenarios/replacement_nodes.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import gang, launch_gang, replace
from nodeheal.services.jobs import job_replacement_node
from nodeheal.services.recovery import build_decision_context, new_machine
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import replacement_nodes as when

GUARDS = (
    # What is claimed for a job
    Guard(
        "that its job has moved",
        job_replacement_node.let_go_of_claims,
        "has_moved",
        when.its_job_was_restarted_where_it_was,
        "True",
    ),
    Guard(
        "that a restart was a move",
        job_replacement_node.let_go_of_claims,
        "t.decision.is_move",
        when.its_job_was_restarted_where_it_was,
        "True",
    ),
    Guard(
        "that what was to move has moved",
        job_replacement_node.let_go_of_claims,
        "t.decision.step is Step.RESTART_WORKLOAD",
        when.its_job_was_to_move_and_did_not,
        "True",
    ),
    Guard(
        "that a replacement node is in service still",
        job_replacement_node._proven,
        "node.state not in (NodeState.HEALTHY, NodeState.PROBATION)",
        when.its_replacement_node_is_out_of_service_when_it_is_let_go,
    ),
    Guard(
        "that a spare is no stand-in for another",
        build_decision_context._ways_out,
        "node.node_id not in own",
        when.its_spare_is_listed_as_a_free_node_still,
        "True",
    ),
    # Where it is launched
    Guard(
        "that a peer is good since its fault",
        launch_gang._why_unfit,
        "node.healthy_since >= fault.alike[-1].observed_at",
        when.its_peer_has_failed_since_it_was_good,
        "True",
    ),
    Guard(
        "that who is to bring a job back knows of it",
        launch_gang._left_to,
        "head.job_id is None",
        when.a_node_that_failed_before_it_had_the_job_is_to_bring_it_back,
    ),
    Guard(
        "that a rank is done already",
        gang.has_started,
        "task.has_succeeded",
        when.a_rank_is_done_before_its_launch_is_called_again,
    ),
    Guard(
        "whom a job has left, of all its runs",
        launch_gang._let_go_of_who_was_left,
        "ports.jobs.runs(job.job_id)",
        when.a_launch_broke_off_before_the_job_moved,
        "[ports.jobs.get_run(job.job_id, run.number - 1)]",
    ),
    # Which machine is a successor
    Guard(
        "whom EC2 knows",
        new_machine.on_machine_booted,
        "is_ec2",
        when.a_node_comes_up_that_is_none_of_ec2s,
        "True",
        nth=2,
    ),
    Guard(
        "that who waits has got it",
        new_machine.on_machine_booted,
        "has_taken(operation, node.node_id)",
        when.a_machine_comes_for_who_waits_while_another_is_owed_one,
    ),
    Guard(
        "that a machine has served before",
        new_machine.on_machine_booted,
        "node.past_boots",
        when.a_machine_that_has_served_reboots_while_another_is_owed_one,
    ),
    Guard(
        "that who is owed one wants it still",
        new_machine._report_late,
        "report_late(owed, node, machine.group, ports)",
        when.the_first_that_is_owed_one_was_given_back,
        "(report_late(owed, node, machine.group, ports), True)[1]",
    ),
    Guard(
        "that a launched machine is known by its name",
        replace._find_new_node,
        "record.launched",
        when.its_launched_machine_is_not_told_of,
        nth=1,
    ),
    Guard(
        "that a launched machine may have rebooted",
        replace.take_new_node,
        "record.launched != fresh.node_id",
        when.its_launched_machine_has_rebooted_before_it_is_looked_for,
        "True",
    ),
    Guard(
        "that a group makes it",
        replace._find_new_node,
        "record.group",
        when.somebody_launches_another_while_it_is_terminated,
        "True",
    ),
)
