"""Who is let in besides our own roles: services of AWS, for what is ours, and nobody else."""

import json
from typing import Any

from nodeheal.contract import names
from tests.infrastructure.synthesis import Template, role_named

_POLICIES = ("AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy", "AWS::S3::BucketPolicy", "AWS::Events::EventBusPolicy")
_FROM_OURS = ("aws:SourceArn", "aws:SourceAccount")
# EventBridge gives SNS no context for a condition: docs/security.md says what follows from that.
UNCONDITIONED = [("AWS::SNS::TopicPolicy", "events.amazonaws.com", "sns:Publish")]


def let_in(real: Template) -> list[tuple[str, dict[str, Any]]]:
    """Every statement of a resource's own policy that allows something."""
    return [
        (kind, statement)
        for kind in _POLICIES
        for _, resource in real.of_type(kind)
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]


def test_no_other_account_is_let_in(real: Template) -> None:
    allowed = let_in(real)

    assert len(allowed) > 5
    assert [s for _, s in allowed if set(s["Principal"]) != {"Service"}] == []
    unbound = [(k, s) for k, s in allowed if not any(key in json.dumps(s.get("Condition", {})) for key in _FROM_OURS)]
    assert [(kind, s["Principal"]["Service"], s["Action"]) for kind, s in unbound] == UNCONDITIONED


def test_a_function_is_called_only_for_something_of_this_account(real: Template) -> None:
    callers = [resource["Properties"] for _, resource in real.of_type("AWS::Lambda::Permission")]

    assert len(callers) > 10
    # AppConfig: stacks/policy_store.py says why. The validator reads a document, answers, and may do nothing else.
    unbound = [c for c in callers if not ("SourceArn" in c or "SourceAccount" in c)]
    assert [c["Principal"] for c in unbound] == ["appconfig.amazonaws.com"]
    assert "ValidatePolicyFunction" in json.dumps(unbound[0]["FunctionName"])


def test_a_role_is_taken_on_by_services_and_the_one_that_asks_controllers_by_this_account(real: Template) -> None:
    trusted = {
        json.dumps(statement["Principal"])
        for name, role in real.of_type("AWS::IAM::Role")
        if not name.startswith("ControllerRole")
        for statement in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    }

    assert trusted == {
        json.dumps({"Service": f"{service}.amazonaws.com"})
        for service in ("ec2", "ecs-tasks", "lambda", "ssm", "states")
    }
    [asking] = role_named(real, names.CONTROLLER_ROLE)["AssumeRolePolicyDocument"]["Statement"]
    assert json.dumps(asking["Principal"]["AWS"]).endswith('{"Ref": "AWS::AccountId"}, ":root"]]}')


def test_nothing_of_ours_is_kept_where_a_nodes_role_may_read(real: Template) -> None:
    """AmazonSSMManagedInstanceCore reads every parameter of Parameter Store."""
    kinds = {resource["Type"] for resource in real.resources.values()}

    assert "AWS::SSM::Parameter" not in kinds
    assert "AWS::SecretsManager::Secret" in kinds


def test_no_template_or_environment_holds_a_secret(real: Template) -> None:
    [secret] = [resource["Properties"] for _, resource in real.of_type("AWS::SecretsManager::Secret")]
    variables = {
        name
        for _, function in real.of_type("AWS::Lambda::Function")
        for name in function["Properties"].get("Environment", {}).get("Variables", {})
    }

    assert set(secret["GenerateSecretString"]) and "SecretString" not in secret
    suspect = [name for name in variables if any(word in name for word in ("KEY", "SECRET", "TOKEN", "PASSWORD"))]
    assert [name for name in suspect if not name.endswith("_ARN")] == []  # where it is says nothing of what it is
