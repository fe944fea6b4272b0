"""tests/golden/iam_matrix.csv: who may do what, on what, under which condition, as the templates say it.

After a change that is meant: `python -m tests.infrastructure.test_iam_matrix`, and read the diff.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.infrastructure.synthesis import Template, synthesize

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "iam_matrix.csv"
HEADER = ("who", "effect", "action", "resource", "condition")
_KINDS = ("AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
Row = tuple[str, ...]
_DIGEST = re.compile(r"[0-9a-f]{64}")
# What the CDK puts after a name.
_SUFFIX = re.compile(r"[0-9A-F]{8}$")


def matrix(templates: Template) -> list[Row]:
    """One row for each action and resource of each statement of each role and policy."""
    rows = [
        row
        for kind in _KINDS
        for who, resource in templates.of_type(kind)
        for row in _rows(_SUFFIX.sub("", who), resource)
    ]
    return sorted(set(rows))


def _rows(who: str, resource: dict[str, Any]) -> Iterator[Row]:
    properties = resource["Properties"]
    documents = [policy["PolicyDocument"] for policy in properties.get("Policies", ())]
    documents += [properties["PolicyDocument"]] if "PolicyDocument" in properties else []
    for arn in properties.get("ManagedPolicyArns", ()):
        yield who, "Allow", "(managed policy)", spelled(arn), ""
    for statement in (statement for document in documents for statement in document["Statement"]):
        condition = json.dumps(statement.get("Condition", {}), default=str, sort_keys=True)
        for action in _listed(statement["Action"]):
            for on in _listed(statement["Resource"]):
                yield who, statement["Effect"], action, spelled(on), "" if condition == "{}" else _flat(condition)


def spelled(value: Any) -> str:
    """A resource as text, with what the template leaves to CloudFormation in ${}."""
    if isinstance(value, str):
        return _DIGEST.sub("<digest>", value)
    [(function, given)] = value.items()
    if function == "Fn::Join":
        return str(given[0]).join(spelled(part) for part in given[1])
    if function == "Fn::GetAtt":
        return f"${{{'.'.join(given)}}}"
    return f"${{{spelled(given)}}}"  # Ref, Fn::Sub


def _flat(condition: str) -> str:
    """A condition as text, its joined values spelled as the resources are."""
    return json.dumps(_walked(json.loads(condition)), sort_keys=True)


def _walked(value: Any) -> Any:
    if isinstance(value, dict):
        is_function = len(value) == 1 and next(iter(value)).startswith(("Fn::", "Ref"))
        return spelled(value) if is_function else {key: _walked(inner) for key, inner in value.items()}
    return [_walked(inner) for inner in value] if isinstance(value, list) else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def dumped(rows: list[Row]) -> str:
    """The matrix as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *rows])
    return text.getvalue()


def test_the_templates_grant_exactly_what_is_written_down(real: Template) -> None:
    assert dumped(matrix(real)).splitlines() == GOLDEN.read_text("utf-8").splitlines()


def test_nothing_is_granted_by_a_pattern_of_actions(real: Template) -> None:
    assert [row for row in matrix(real) if "*" in row[2]] == []


def test_no_role_of_ours_may_change_who_may_do_what(real: Template) -> None:
    about_identities = {(row[0], row[2]) for row in matrix(real) if row[2].startswith("iam:")}
    assumed = {row[3] for row in matrix(real) if row[2].startswith("sts:")}

    read_by_the_doctor = ("OperatorDoctorPolicy", "iam:GetInstanceProfile")
    assert {action for _, action in about_identities - {read_by_the_doctor}} == {"iam:PassRole"}
    assert len(assumed) == 1
    assert "role/nodeheal-controllers-" in assumed.pop()


if __name__ == "__main__":
    GOLDEN.write_text(
        dumped(matrix(synthesize({"nodeheal": {"alert_emails": ["oncall@example.com"]}}))), encoding="utf-8"
    )
