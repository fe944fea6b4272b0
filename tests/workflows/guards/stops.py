"""The guards of tests/workflows/scenarios/stops.py: where each stands, and what goes wrong without it."""

from nodeheal.services import boot_wait, reboot_node, stop_start
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import stops as when

_MAY_STOP = "'' if wait.command_id else why_not_stop(machine)"
_IS_TO_STOP = "wait.command_id == STOPPING and machine.state in ('pending', 'running')"

GUARDS = (
    Guard(
        "that a machine which is to stop proves nothing",
        boot_wait.proves_boot,
        "wait.command_id in (STOPPING, STOPPED)",
        when.its_boot_is_told_when_it_has_stopped_again,
    ),
    Guard(
        "that it is back",
        stop_start.stop_start,
        "is_started(request, node, ports)",
        when.it_is_back_when_it_is_asked_again,
    ),
    Guard("what may be stopped", stop_start.stop_start, "why_not_stop(machine)", when.its_group_would_replace_it, "''"),
    Guard(
        "that it was us who stopped it",
        stop_start.stop_start,
        _MAY_STOP,
        when.it_has_stopped_when_it_is_asked_again,
        "why_not_stop(machine)",
    ),
    Guard(
        "that it has stopped",
        stop_start.stop_start,
        "machine.state in ('pending', 'running')",
        when.it_has_stopped_when_it_is_asked_again,
        "True",
    ),
    Guard("a stop that was lost", stop_start.stop_start, _IS_TO_STOP, when.its_stop_was_never_sent),
    Guard(
        "that this turn has stopped it",
        stop_start.stop_start,
        f"wait.command_id == '' or ({_IS_TO_STOP})",
        when.it_starts_when_it_is_asked_again,
        "True",
    ),
    Guard(
        "who stopped it last, for a repeated call",
        stop_start.stop_start,
        "not _is_stopped_again(wait, machine, ports)",
        when.somebody_stops_it_after_its_start,
        "True",
    ),
    Guard(
        "who stopped it last, for its event",
        stop_start.on_machine_stopped,
        "_is_stopped_again(wait, machine, ports)",
        when.somebody_stops_it_after_its_start,
    ),
    Guard(
        "who stopped it last, at the deadline",
        stop_start._is_to_start_again,
        "_is_stopped_again(wait, machine, ports)",
        when.somebody_stops_it_after_its_start,
    ),
    Guard(
        "who stopped it first, for its event",
        stop_start.on_machine_stopped,
        "not wait.command_id",
        when.somebody_stops_it_before_us,
    ),
    Guard(
        "who stopped it first, at the deadline",
        stop_start._is_to_start_again,
        "not wait.command_id",
        when.somebody_stops_it_before_us,
    ),
    Guard(
        "that its start was sent",
        stop_start._is_stopped_again,
        "told_line(StepRequest.model_validate_json(wait.request_json), ports, _START_SENT) is not None",
        when.its_start_was_never_sent,
        "True",
    ),
    Guard(
        "that somebody has stopped it",
        stop_start._is_stopped_again,
        "not machine.state_reason.startswith(STOPPED_BY_CALL)",
        when.it_fails_to_start,
    ),
    Guard(
        "that EC2 could not start it",
        stop_start.on_machine_stopped,
        "machine.state_reason and (not machine.state_reason.startswith(STOPPED_BY_CALL))",
        when.it_fails_to_start,
    ),
    Guard(
        "that its own stop was told before",
        stop_start.on_machine_stopped,
        "machine is None or machine.state != 'stopped'",
        when.its_stop_is_told_again,
    ),
    Guard(
        "that it is down",
        stop_start._is_to_start_again,
        "machine.state != 'stopped'",
        when.it_runs_at_its_deadline,
    ),
    Guard(
        "one more start a turn",
        stop_start._is_to_start_again,
        "told_line(request, ports, _START_AGAIN) is None",
        when.it_does_not_stay_up,
        "True",
    ),
    Guard(
        "whether a stop is waited for, at its event",
        stop_start.on_machine_stopped,
        "not wait.request_json",
        when.a_machine_that_was_only_rebooted_is_stopped,
    ),
    Guard(
        "whether a stop is waited for, in its turn",
        stop_start._wait_of,
        "not wait.request_json",
        when.a_machine_that_was_only_rebooted_is_stopped,
    ),
    Guard(
        "that a stop has cost its attempt",
        stop_start._refuse,
        "not wait.command_id",
        when.it_is_gone_after_its_stop,
        "True",
    ),
    Guard(
        "that a stop has cost its attempt, at the deadline",
        stop_start.is_begun,
        "told is not None",
        when.its_look_is_repeated,
    ),
    Guard(
        "that nothing was asked for",
        stop_start.look_at_stop_start,
        "not has_begun",
        when.nothing_was_asked_at_its_deadline,
    ),
    Guard(
        "that a stop has cost its attempt, whoever has the node",
        reboot_node.reboot_node,
        "not is_begun(request, ports)",
        when.a_human_takes_it_after_its_stop,
        "True",
    ),
    Guard(
        "that a reboot has cost its attempt, whoever has the node",
        reboot_node.reboot_node,
        "not noted_boot(request, ports, REBOOTING)",
        when.a_human_takes_it_after_its_reboot,
        "True",
        nth=1,
    ),
    Guard(
        "that it is back, at the deadline",
        stop_start.look_at_stop_start,
        "is_started(request, node, ports)",
        when.it_is_back_at_its_deadline,
    ),
    Guard(
        "which boot is its return",
        boot_wait.proves_boot,
        "is_started(StepRequest.model_validate_json(wait.request_json), node, ports)",
        when.a_boot_of_before_its_stop_is_told_late,
        "True",
    ),
    Guard(
        "that it was started before, at its event",
        stop_start.on_machine_stopped,
        "wait.command_id == STARTING",
        when.somebody_stops_it_after_its_start,
    ),
    Guard(
        "that it is down, for a repeated call",
        stop_start.stop_start,
        "machine.state == 'stopped'",
        when.it_starts_when_it_is_asked_again,
        "True",
    ),
)
