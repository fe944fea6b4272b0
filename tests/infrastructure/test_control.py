"""What acts in the stack: functions as their table says, events to their targets, a dead-letter queue behind each."""

import json
from typing import Any

import pytest

from nodeheal.contract import names
from nodeheal.contract.vocabulary import ActKind
from nodeheal.operations.reset_gpu import GpuResetFinished
from stacks.control import DOCUMENTS
from stacks.functions import FUNCTIONS, FunctionSpec
from stacks.permission import READ_POLICY
from stacks.settings import REPOSITORY
from stacks.workflows import JOB, PARENT, Workflow
from tests.infrastructure.synthesis import Template

EACH_FUNCTION = pytest.mark.parametrize("spec", FUNCTIONS, ids=lambda spec: spec.stem)


def function(templates: Template, spec: FunctionSpec) -> Any:
    """A function's properties."""
    for _, resource in templates.of_type("AWS::Lambda::Function"):
        if resource["Properties"]["FunctionName"] == spec.deployed_name:
            return resource["Properties"]
    raise AssertionError(f"{spec.deployed_name} is not deployed")


def rule(templates: Template, text: str, target: str = "") -> Any:
    """The one rule whose pattern or schedule contains this text, and whose targets name this function."""
    [found] = [
        r["Properties"]
        for _, r in templates.of_type("AWS::Events::Rule")
        if text in json.dumps([r["Properties"].get("EventPattern"), r["Properties"].get("ScheduleExpression")])
        and target in json.dumps(r["Properties"]["Targets"])
    ]
    return found


def targets(templates: Template, text: str) -> str:
    """The targets of that rule, as text."""
    return json.dumps(rule(templates, text)["Targets"])


def test_no_function_is_deployed_that_is_not_in_the_table(real: Template) -> None:
    assert len(list(real.of_type("AWS::Lambda::Function"))) == len(FUNCTIONS)


def test_what_no_deadline_and_no_sweep_makes_up_for_waits_in_a_queue(real: Template) -> None:
    """Rules invoke `wakeup`, whose operations have deadlines, and the sweep; pings are no events."""
    rules = [r["Properties"] for _, r in real.of_type("AWS::Events::Rule")]
    events = [json.dumps(r["Targets"]) for r in rules if "keep_warm" not in json.dumps(r["Targets"])]
    invoked = {s.stem for s in FUNCTIONS if any(f'"{s.class_name}Function' in targets for targets in events)}

    assert invoked == {"wakeup", "sweep"}
    assert {s.stem for s in FUNCTIONS if s.queue} == {"ingest", "notify", "take_signal"}
    assert not [s.stem for s in FUNCTIONS if "DeadLetterConfig" in function(real, s)]


@EACH_FUNCTION
def test_a_function_runs_its_own_handler(real: Template, spec: FunctionSpec) -> None:
    deployed = function(real, spec)

    assert deployed["Handler"] == f"{spec.module}.handler"
    assert deployed["Runtime"] == "python3.13"
    assert deployed["Timeout"] == spec.timeout_seconds


@EACH_FUNCTION
def test_a_function_has_a_role_and_a_log_of_its_own(real: Template, spec: FunctionSpec) -> None:
    deployed = function(real, spec)
    logs = {i: r["Properties"]["LogGroupName"] for i, r in real.of_type("AWS::Logs::LogGroup")}

    assert f"{spec.class_name}Role" in json.dumps(deployed["Role"])
    assert logs[deployed["LoggingConfig"]["LogGroup"]["Ref"]] == spec.log_group


@EACH_FUNCTION
def test_a_function_is_told_every_name_that_the_code_reads(real: Template, spec: FunctionSpec) -> None:
    told = set(function(real, spec)["Environment"]["Variables"])

    read = {value for name, value in vars(names).items() if name.startswith("ENV_")}
    # The page's own address is known when its function is there: only who writes the links is told.
    missing = set() if spec.stem == "wait_for_approval" else {names.ENV_APPROVAL_URL}
    missing |= {names.ENV_POLICY} if READ_POLICY not in spec.permissions else set()
    missing |= {names.ENV_TASK_ROLES} if spec.stem != "request_job" else set()
    assert read - told == missing


@pytest.mark.parametrize("stem", [PARENT, JOB])
def test_a_state_machine_is_its_file_with_every_placeholder_filled(real: Template, stem: str) -> None:
    deployed = {
        r["Properties"]["StateMachineName"]: r["Properties"]
        for _, r in real.of_type("AWS::StepFunctions::StateMachine")
    }
    machine = deployed[Workflow(stem).deployed_name]

    assert machine["DefinitionString"] == Workflow(stem).path.read_text("utf-8")
    assert set(machine["DefinitionSubstitutions"]) == Workflow(stem).placeholders()
    assert machine["StateMachineType"] == "STANDARD"
    assert machine["LoggingConfiguration"]["Level"] == "ERROR"


def test_one_bad_event_does_not_hold_up_its_batch(real: Template) -> None:
    feeds = [feed["Properties"] for _, feed in real.of_type("AWS::Lambda::EventSourceMapping")]

    assert len(feeds) == len([spec for spec in FUNCTIONS if spec.queue])
    assert all(feed["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for feed in feeds)


def test_as_many_functions_take_reports_at_once_as_the_page_of_costs_says(real: Template) -> None:
    """S6: reports took all the functions that the account may run, those of recoveries among them."""
    [feed] = [
        feed["Properties"]
        for _, feed in real.of_type("AWS::Lambda::EventSourceMapping")
        if "EventQueue" in json.dumps(feed["Properties"]["EventSourceArn"])
    ]

    at_once = feed["ScalingConfig"]["MaximumConcurrency"]
    assert f"{at_once} functions at once" in (REPOSITORY / "docs" / "security.md").read_text("utf-8")


def test_the_page_that_asks_takes_five_requests_a_second(real: Template) -> None:
    """L7: from all together, as docs/security.md says."""
    stages = {i: stage["Properties"] for i, stage in real.of_type("AWS::ApiGatewayV2::Stage")}
    [approval] = [stage for name, stage in stages.items() if name.startswith("Approval")]

    assert approval["DefaultRouteSettings"]["ThrottlingRateLimit"] == 5


def test_every_act_has_a_route_that_iam_permits(real: Template) -> None:
    routes = [r["Properties"] for i, r in real.of_type("AWS::ApiGatewayV2::Route") if i.startswith("Acts")]

    assert {(route["RouteKey"], route["AuthorizationType"]) for route in routes} == {
        (f"POST {kind.path}", "AWS_IAM") for kind in ActKind
    }


def test_nobody_of_ours_reads_the_task_tokens_in_the_histories_of_workflows(real: Template) -> None:
    """L3: a state hands its token to a function, and Step Functions keeps what it handed over."""
    assert "GetExecutionHistory" not in json.dumps(real.body)


def test_every_target_has_a_dead_letter_queue(real: Template) -> None:
    found = [t for _, r in real.of_type("AWS::Events::Rule") for t in r["Properties"]["Targets"]]

    assert found
    assert [t for t in found if "DeadLetterConfig" not in t] == []


def test_health_events_are_queued(real: Template) -> None:
    found = [
        json.dumps(r["Properties"]["Targets"])
        for _, r in real.of_type("AWS::Events::Rule")
        if r["Properties"].get("EventPattern", {}).get("detail-type") == [names.NODE_HEALTH_REPORTED]
    ]
    assert found
    assert all("EventQueue" in targets for targets in found)


def test_what_a_node_answers_reaches_wakeup_and_nothing_else_that_it_says(real: Template) -> None:
    pattern = rule(real, names.NODE_BOOTED, "WakeupFunction")["EventPattern"]

    answers = [names.CHECKPOINT_FOUND, names.DIAGNOSTICS_FINISHED, names.EVIDENCE_FROZEN, GpuResetFinished.detail_type]
    assert pattern == {
        "source": [names.AGENT_SOURCE],
        "detail-type": [names.NODE_BOOTED, names.NODE_HARDWARE_REPORTED, *answers],
    }


@pytest.mark.parametrize(
    "event",
    [
        names.ECS_TASK_STATE_CHANGE,
        names.SSM_INVOCATION_CHANGE,
        names.GROUP_LAUNCHED,
        names.GROUP_LAUNCH_FAILED,
        names.MACHINE_STATE_CHANGE,
    ],
)
def test_what_a_workflow_may_wait_for_reaches_wakeup(real: Template, event: str) -> None:
    assert rule(real, event, "WakeupFunction")


@pytest.mark.parametrize("event", [names.INCIDENT_CLOSED, names.INCIDENT_ESCALATED])
def test_the_end_of_an_incident_reaches_the_operators(real: Template, event: str) -> None:
    assert "NotifyQueue" in targets(real, event)
    assert rule(real, event)["EventPattern"]["source"] == [names.CONTROL_SOURCE]


def test_only_our_tasks_of_our_cluster_wake_anybody(real: Template) -> None:
    detail = rule(real, names.ECS_TASK_STATE_CHANGE, "WakeupFunction")["EventPattern"]["detail"]

    assert json.dumps(detail["clusterArn"]).endswith(':cluster/training"]]}]')
    assert detail["startedBy"] == [{"prefix": names.started_by("", 0).split("/")[0] + "/"}]


def test_only_our_own_commands_wake_anybody(real: Template) -> None:
    detail = rule(real, names.SSM_INVOCATION_CHANGE)["EventPattern"]["detail"]

    assert detail["document-name"] == [{"prefix": "nodeheal-"}]
    assert all(names.document(stem).startswith("nodeheal-") for stem in DOCUMENTS)
    assert "Success" in detail["status"][0]["anything-but"]  # its own event says what came of it


@pytest.mark.parametrize(
    ("workflow", "runbook"), [("RecoverNodeWorkflow", "recovery-broke"), ("RunJobWorkflow", "job-broke")]
)
def test_a_broken_workflow_pages_unless_it_has_paged_already(real: Template, workflow: str, runbook: str) -> None:
    broken = rule(real, workflow)

    assert broken["EventPattern"]["detail"]["$or"] == [
        {"status": ["TIMED_OUT", "ABORTED"]},
        {"status": ["FAILED"], "error": [{"anything-but": [names.ERROR_ALREADY_PAGED]}]},
    ]
    assert "Topic" in json.dumps(broken["Targets"][0]["Arn"])
    assert f"Runbook: docs/runbooks/{runbook}.md" in json.dumps(broken["Targets"][0]["InputTransformer"])


def test_what_stands_between_a_fault_and_the_resumed_job_is_kept_warm(real: Template) -> None:
    pings = [one["Properties"]["Targets"] for _, one in real.of_type("AWS::Events::Rule") if _is_ping(one)]
    warm = [target for targets in pings for target in targets]

    assert all(len(targets) <= 5 for targets in pings)  # the quota of EventBridge
    assert all(json.loads(target["Input"]) == names.KEEP_WARM for target in warm)
    assert {target["Arn"]["Fn::GetAtt"][0].split("Function")[0] for target in warm} == {
        "DecideNextStep",
        "FreezeEvidence",
        "Ingest",
        "IsolateNode",
        "LaunchGang",
        "RebootNode",
        "ReturnToService",
        "RunDiagnostics",
        "StopGang",
        "Wakeup",
    }


def _is_ping(found: Any) -> bool:
    return bool(found["Properties"].get("ScheduleExpression") == "rate(5 minutes)")


@pytest.mark.parametrize("stem", DOCUMENTS)
def test_an_ssm_document_is_the_packaged_file(real: Template, stem: str) -> None:
    deployed = {r["Properties"]["Name"]: r["Properties"] for _, r in real.of_type("AWS::SSM::Document")}
    packaged = json.loads((REPOSITORY / "packaging" / "ssm" / f"{stem}.json").read_text("utf-8"))

    name = names.document(stem)
    assert deployed[name]["Content"] == packaged
    assert deployed[name]["DocumentType"] == "Command"
