"""`nodeheal doctor` in an account: before the deployment, after it, and with nodes that lack something."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nodeheal.contract import names
from sandbox.client import Sandbox
from tests.support.operators import Operator, deployed, operator
from tests.support.until import until

pytestmark = pytest.mark.emulated

IDLE = ["sleep", "3600"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("doctor"), boot_seconds=0.5) as sandbox:
        yield sandbox


def found(said: str) -> dict[str, list[dict[str, Any]]]:
    """The findings by what they are about."""
    told: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(said):
        told.setdefault(one["what"], []).append(one)
    return told


def test_before_and_after_a_deployment_it_names_what_is_missing_and_what_to_do(cloud: Sandbox) -> None:
    before = found(Operator(cloud, {}).types("doctor", "--json").stdout)
    assert before["cdk bootstrap"][0]["state"] == "fail"
    assert before["stack"][0]["todo"] == "run `make deploy`; or is AWS_REGION wrong? (now: us-east-1)"
    assert before["AppConfig applications"][0]["detail"] == "0 of 100 applications are in use"
    assert before["AppConfig deployment strategies"][0]["detail"] == "0 of 20 deployment strategies are in use"
    assert "alarms" not in before

    cloud.deploy()
    ports = deployed(cloud)
    healthy = cloud.add_node("whole")
    untagged = cloud.add_node("bare", tags={})
    mute = cloud.add_node("bare", agent=IDLE)
    until(lambda: ports.nodes.get(healthy.node_id) and ports.nodes.get(untagged.node_id), "report of the agents")

    doctor = operator(cloud, "doc", "OperatorDoctorPolicyArn")
    answer = doctor.types("doctor", "--json")
    after = found(answer.stdout)

    assert not [one for ones in after.values() for one in ones if one["state"] == "unknown"], answer.stdout
    well = ("cdk bootstrap", "stack", "log groups", "SSM tier", "policy", "policy size", "state table")
    assert {after[what][0]["state"] for what in well} == {"ok"}
    assert after["alert emails"][0]["state"] == "fail"
    [bare] = after["unenrolled nodes"]
    assert (bare["state"], bare["detail"]) == (
        "warn",
        f"they report, but are not enrolled: {untagged.node_id}",
    )
    assert bare["todo"].startswith("nodeheal nodes enroll NODE")
    assert [one["state"] for one in after["nodes of whole"]] == ["warn"]  # never diagnosed
    assert f"{mute.node_id} (role nodeheal-node-us-east-1)" in after["machines"][0]["detail"]
    assert answer.returncode == 1

    misspelt = found(doctor.types("doctor", "--table", "nope", "--json").stdout)
    # The doctor's policy names the stack's table alone, so IAM does not say whether another one exists.
    assert misspelt["state table"][0]["detail"] == "you may not read the table nope, if it exists"
    assert f"the stack's table is {names.TABLE}" in misspelt["state table"][0]["todo"]

    told = doctor.types("doctor").stdout
    assert f"WARN     unenrolled nodes: they report, but are not enrolled: {untagged.node_id}" in told
    assert "→ nodeheal nodes enroll NODE" in told
