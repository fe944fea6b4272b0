"""Two Regions of one account, and two accounts: no name is taken twice where AWS knows it once."""

import pytest

from tests.infrastructure.filled import Place, name_of
from tests.infrastructure.synthesis import Template

# Kinds whose names are one for all Regions of an account, with the page that says so.
GLOBAL_TO_THE_ACCOUNT = {
    "AWS::CloudWatch::Dashboard": "CloudWatch API Reference, PutDashboard",
    "AWS::IAM::Group": "IAM User Guide, identifiers",
    "AWS::IAM::InstanceProfile": "IAM User Guide, identifiers",
    "AWS::IAM::ManagedPolicy": "IAM User Guide, identifiers",
    "AWS::IAM::Role": "IAM User Guide, identifiers",
    "AWS::IAM::User": "IAM User Guide, identifiers",
    "AWS::S3::Bucket": "S3 User Guide, bucket naming rules",
}
# Kinds whose names are one for all accounts of a partition.
GLOBAL_TO_THE_PARTITION = ("AWS::S3::Bucket",)
FRANKFURT, IRELAND = Place(region="eu-central-1"), Place(region="eu-west-1")
BEIJING, NINGXIA = Place("aws-cn", "cn-north-1"), Place("aws-cn", "cn-northwest-1")
OTHER_ACCOUNT = Place(region="eu-central-1", account="444455556666")


def given_names(template: Template, kinds: tuple[str, ...], place: Place) -> set[tuple[str, str]]:
    """Kind and name of every resource that the template names. What CloudFormation names itself is never taken."""
    found = {(kind, name_of(name, template, place)) for kind in kinds for name, _ in template.of_type(kind)}
    return {(kind, name) for kind, name in found if not name.endswith("-0123456789AB")}


@pytest.mark.parametrize(("one", "other"), [(FRANKFURT, IRELAND), (BEIJING, NINGXIA)])
def test_two_regions_of_an_account_share_no_name(real: Template, one: Place, other: Place) -> None:
    kinds = tuple(GLOBAL_TO_THE_ACCOUNT)

    here, there = given_names(real, kinds, one), given_names(real, kinds, other)

    assert {kind for kind, _ in here} == {
        "AWS::CloudWatch::Dashboard",
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Role",
        "AWS::S3::Bucket",
    }
    assert here & there == set()


def test_two_accounts_share_no_name_of_a_bucket(real: Template) -> None:
    here, there = (given_names(real, GLOBAL_TO_THE_PARTITION, place) for place in (FRANKFURT, OTHER_ACCOUNT))

    assert here
    assert here & there == set()


def test_what_is_granted_in_one_region_is_passed_there_and_nowhere_else(real: Template) -> None:
    """A role of one Region may pass the execution role of that Region only."""
    passed = [
        statement["Resource"]
        for _, role in real.of_type("AWS::IAM::Role")
        for policy in role["Properties"].get("Policies", ())
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "iam:PassRole"
    ]

    assert passed
    assert all(resource["Fn::Join"][1][-1] == {"Ref": "AWS::Region"} for resource in passed)
