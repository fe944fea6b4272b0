"""`nodeheal policy`: what it says of documents on the disk, of changes, and of what AppConfig holds."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError, NoRegionError
from typer.testing import CliRunner, Result

from nodeheal.adapters.aws import policy_documents
from nodeheal.adapters.aws.policy_documents import PolicyDocuments
from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.cli.say import DEFAULT_POLICY
from nodeheal.contract import names
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import PoolPolicy, Weekday
from nodeheal.services.operators.validate_policy import validate_policy
from tests.support.appconfig import PLACE, FakeAppConfig
from tests.support.builders import memory_ports, node
from tests.support.deployed_stacks import FakeStacks
from tools.policy_reference import EXAMPLE

LIMITS = {
    name: {"group": name, "limit": 1, "window_seconds": 86_400} for name in ("REBOOT", "REPLACE", "RESTART_WORKLOAD")
}
MODE_CHANGE = {
    "knob": "default_pool.mode",
    "about": PoolPolicy.model_fields["mode"].description,
    "before": "observe",
    "after": "act",
}
OBSERVE, ACT = {"default_pool": {"mode": "observe"}}, {"default_pool": {"mode": "act"}}


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["policy", *map(str, words)])


def answered(*words: object) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def version_of(document: object) -> str:
    return RecoveryPolicy.model_validate(document).version


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Writes documents to files."""

    def write(document: object, name: str = "policy.json") -> Path:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


class FakeSts:
    """Names the caller."""

    def get_caller_identity(self) -> dict[str, str]:
        return {"Arn": "arn:aws:iam::123456789012:user/ada"}


@pytest.fixture
def appconfig(monkeypatch: pytest.MonkeyPatch) -> FakeAppConfig:
    fake = FakeAppConfig()
    stacks = FakeStacks({names.POLICY_OUTPUT: "a/e/p/s"})
    clients: dict[str, Any] = {"appconfig": fake, "cloudformation": stacks, "sts": FakeSts()}
    monkeypatch.setattr(connect, "client", clients.__getitem__)
    world = memory_ports()
    world.nodes.save(node())  # of pool demo
    monkeypatch.setattr(connect, "ports", lambda table: world)
    return fake


# check ---------------------------------------------------------------------------------------------------------------


def test_a_valid_document_is_told_with_its_version(file: Any) -> None:
    path = file(ACT)

    assert run("check", path).output == f"{path}: valid, version {version_of(ACT)}\n"
    assert answered("check", path) == {
        "file": str(path),
        "is_valid": True,
        "version": version_of(ACT),
        "warnings": [],
    }


@pytest.mark.parametrize("document", [json.loads(DEFAULT_POLICY.read_text()), {}, json.loads(EXAMPLE)])
def test_what_comes_with_nodeheal_is_valid_and_beyond_doubt(file: Any, document: object) -> None:
    assert run("check", "--strict", file(document)).exit_code == 0


ALL_WEEK = [{"days": [day.value for day in Weekday], "starts_at": "00:00", "minutes": 1440, "why": "x"}]


@pytest.mark.parametrize(
    ("document", "warning"),
    [
        ({"pools": {"*": {}}}, "pools.*: '*' is taken as it is, not as a pattern"),
        ({"pools": {"h100-[ab]": {}}}, "pools.h100-[ab]: 'h100-[ab]' is taken as it is"),
        ({"pools": {"h100 ": {}}}, "pools.h100 : 'h100 ' begins or ends with a space"),
        (
            {"overrides": [{"fault": "xid/79", "ladder": ["REBOOT"], "pools": ["h*"], "why": "x"}]},
            "overrides.0.pools: 'h*' is taken as it is",
        ),
        ({"default_pool": {"mode": "act", "budget": {"max_nodes": 0}}}, "default_pool.budget: no node may ever"),
        (
            {"pools": {"a": {"mode": "approve", "budget": {"max_percent": 0, "floor_nodes": 0}}}},
            "pools.a.budget: no node may ever",
        ),
        (
            {"default_pool": {"mode": "act", "replacement": {"max_nodes": 3}}},
            "default_pool.replacement.max_nodes: 3 at once, but the budget never lets more than 1 out of service",
        ),
        ({"default_pool": {"mode": "act", "maintenance": ALL_WEEK}}, "default_pool.maintenance: the windows leave no"),
        ({"deadlines": {"reboot_seconds": 1}}, "deadlines.reboot_seconds: 1 s is less than can be"),
        ({"deadlines": {"stop_start_seconds": 30}}, "deadlines.stop_start_seconds: 30 s is less than can be"),
        (
            {
                "default_pool": {"mode": "act", "stop_start": True},
                "limits": {
                    **json.loads(RecoveryPolicy().model_dump_json())["limits"],
                    "STOP_START": {"group": "STOP_START", "limit": 0, "window_seconds": 86400},
                },
            },
            "limits.STOP_START.limit: 0 attempts",
        ),
        ({"deadlines": {"isolate_seconds": 5}}, "deadlines.isolate_seconds: 5 s is less than can be"),
        ({"diagnostics_level": 3}, "diagnostics_level: level 3 can take 1800 s"),
        ({"pools": {"a": {"diagnostics_level": 4}}}, "pools.a.diagnostics_level: level 4 can take 5400 s"),
        (
            {"overrides": [{"fault": "xid/7999", "ladder": ["REBOOT"], "why": "x"}]},
            "overrides.0.fault: the catalog does not know xid/7999",
        ),
        ({"settling": ["nvml/GPU_MISING"]}, "does not know nvml/GPU_MISING; did you mean nvml/GPU_MISSING"),
        (
            {**ACT, "limits": {**LIMITS, "REBOOT": {"group": "REBOOT", "limit": 0, "window_seconds": 60}}},
            "limits.REBOOT",
        ),
    ],
)
def test_valid_nonsense_is_warned_of_and_fails_only_where_that_is_asked_for(
    file: Any, document: object, warning: str
) -> None:
    path = file(document)

    said, strict = run("check", path), run("check", path, "--strict")

    assert (said.exit_code, strict.exit_code) == (0, 1)
    assert said.output == strict.output
    assert f"\nwarning: {warning}" in said.output or f"warning: settling.0: the catalog {warning}" in said.output
    assert len(answered("check", path)["warnings"]) == 1


@pytest.mark.parametrize(
    "document",
    [
        {"default_pool": {"budget": {"max_nodes": 0}, "maintenance": ALL_WEEK}},
        {"overrides": [{"fault": "xid/*", "ladder": ["OBSERVE"], "why": "x"}]},
        {"default_pool": {"mode": "act", "budget": {"max_nodes": 4}, "replacement": {"max_nodes": 3}}},
        {"default_pool": {"mode": "act", "maintenance": [{**ALL_WEEK[0], "minutes": 1400}]}},
    ],
)
def test_what_may_well_be_meant_is_beyond_doubt(file: Any, document: object) -> None:
    assert run("check", "--strict", file(document)).exit_code == 0


@pytest.mark.parametrize(
    ("document", "hint"),
    [
        ({"default_pool": {"mode": "Act"}}, "did you mean `act`?"),
        ({"default_pool": {"mode": "aprove"}}, "did you mean `approve`?"),
        ({"default_pool": {"modes": {"reboot": "act"}}}, "did you mean `REBOOT`?"),
        ({"lemon": {"action": "replace"}}, "did you mean `REPLACE`?"),
    ],
)
def test_a_word_that_is_nearly_right_is_put_right(file: Any, document: object, hint: str) -> None:
    refused = run("check", file(document))

    assert (refused.exit_code, hint in refused.output) == (2, True), refused.output


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("{", "it is not JSON: Expecting property name"),
        ("[]", "document: is a list; give an object of fields"),
        ({"shoe_size": 44}, "shoe_size: there is no such field"),
        (
            {"default_pool": {"mode": "destroy"}},
            'default_pool.mode: "destroy" is not known; give observe, approve or act',
        ),
        ({"pools": {"h100": {"budget": {"max_nodes": -1}}}}, "pools.h100.budget.max_nodes: "),
        ({"limits": {}}, "limits: REBOOT is missing"),
        ({"overrides": [{"fault": "xid/31", "ladder": ["REBOOT", "OBSERVE"], "why": "x"}]}, "overrides.0.ladder: "),
    ],
)
def test_a_document_that_is_wrong_is_refused_by_field(file: Any, document: object, told: str) -> None:
    path = file(document)

    result = run("check", path)

    assert result.exit_code == 2
    assert result.output.startswith(f"{path}: {told}")


def test_every_field_that_is_wrong_is_told_in_a_line(file: Any) -> None:
    result = run("check", file({"shoe_size": 44, "default_pool": {"mode": "destroy"}}))

    assert len(result.output.splitlines()) == 2


@pytest.mark.parametrize("verb", [["check"], ["apply", "--why", "x"], ["diff", DEFAULT_POLICY]])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, appconfig: FakeAppConfig, verb: list[object]) -> None:
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}')
    told = {"missing": "No such file or directory", "": "Is a directory", "latin": "it is not UTF-8 text"}

    results = {name: run(*verb, tmp_path / name) for name in told}

    assert {name: result.exit_code for name, result in results.items()} == dict.fromkeys(told, 2)
    assert {name: result.output for name, result in results.items()} == {
        name: f"{tmp_path / name}: {why}\n" for name, why in told.items()
    }


# diff ----------------------------------------------------------------------------------------------------------------


def test_the_same_document_changes_nothing(file: Any) -> None:
    written_out = file(RecoveryPolicy.model_validate(OBSERVE).model_dump(mode="json"), "long.json")

    said = run("diff", file(OBSERVE), written_out).output

    assert len(said.splitlines()) == 2
    assert said.endswith("\n0 faults would be treated differently\n")


def test_a_setting_that_differs_is_one_line_and_nothing_is_said_twice(file: Any) -> None:
    said = run("diff", file(OBSERVE, "a"), file(ACT, "b")).output

    first, setting, faults = said.splitlines()
    assert first.endswith(f" is version {version_of(ACT)}")
    assert setting == "  default_pool.mode: observe -> act"
    assert faults.endswith(" faults would be treated differently; --json lists them")


def test_a_file_of_two_settings_is_compared_merged_or_with_a_hint(file: Any, appconfig: FakeAppConfig) -> None:
    budget = {"max_nodes": 3, "max_percent": 7}
    run(
        "apply",
        file({"default_pool": {"mode": "act", "budget": budget}, "move_job_seconds": 77}),
        "--why",
        "x",
        "--yes",
    )
    two = file({"default_pool": {"mode": "approve"}}, "two.json")

    whole, merged = run("diff", two), run("diff", two, "--merge")

    assert "  default_pool.mode: act -> approve" in merged.output
    assert len([line for line in merged.output.splitlines() if " -> " in line]) == 1
    assert "--merge" not in merged.output
    assert f"3 of these settings are not in {two}, and go back to their defaults: --merge keeps them" in whole.output
    assert "--merge: not with two files" in run("diff", two, two, "--merge").output


def test_a_pool_or_an_override_of_one_document_alone_is_compared_setting_by_setting(file: Any) -> None:
    override = {"fault": "xid/79", "ladder": ["REPLACE"], "pools": ["h100"], "why": "they never come back"}
    changed = {**OBSERVE, "pools": {"h100": {"mode": "act", "budget": {"max_nodes": 2}}}, "overrides": [override]}

    said = run("diff", file(OBSERVE, "a"), file(changed, "b")).output
    back = run("diff", file(changed, "b"), file(OBSERVE, "a")).output

    given, *pools = said.splitlines()[1:-1]
    assert given.startswith('  overrides.xid/79 in h100: none -> {"fault": "xid/79"')
    assert pools == ["  pools.h100.budget.max_nodes: 1 -> 2", "  pools.h100.mode: observe -> act"]
    assert "  pools.h100.mode: act -> observe\n" in back


def test_what_only_observes_is_no_difference_between_modes(file: Any) -> None:
    answer = answered("diff", file(OBSERVE, "a"), file(ACT, "b"))

    found = {change["fault"]: change for change in answer["faults"]}
    assert found["xid/79"]["before"]["first_step"] == "CLOSE"
    assert found["xid/79"]["after"] == {
        "first_step": "ISOLATE",
        "ladder": ["REBOOT", "REPLACE"],
        "next_rung": "unproven",
        "mode": "act",
    }
    assert "xid/45" not in found
    assert answer["versions"] == [version_of(OBSERVE), version_of(ACT)]
    assert answer["knobs"] == [MODE_CHANGE]


def test_an_override_of_one_pool_is_a_difference_there_and_nowhere_else(file: Any) -> None:
    override = {"fault": "xid/79", "ladder": ["REPLACE"], "pools": ["h100"], "why": "they never come back"}

    answer = answered("diff", file(ACT, "a"), file({**ACT, "overrides": [override]}, "b"))

    assert [(change["fault"], change["pool"]) for change in answer["faults"]] == [("xid/79", "h100")]
    assert answer["faults"][0]["after"]["ladder"] == ["REPLACE"]


def test_a_code_that_only_an_override_knows_is_a_difference(file: Any) -> None:
    override = {"fault": "xid/555/NEW", "ladder": ["REBOOT"], "why": "the vendor said so"}

    answer = answered("diff", file(ACT, "a"), file({**ACT, "overrides": [override]}, "b"))

    assert [(change["fault"], change["name"]) for change in answer["faults"]] == [("xid/555/NEW", "not in the catalog")]
    assert answer["faults"][0]["before"]["first_step"] == "ESCALATE"


def test_a_whole_family_can_be_overridden(file: Any) -> None:
    override = {"fault": "sxid/*", "ladder": ["ESCALATE"], "why": "we have no switches"}

    found = answered("diff", file(ACT, "a"), file({**ACT, "overrides": [override]}, "b"))["faults"]

    assert found
    assert all(change["fault"].startswith("sxid/") for change in found)
    assert {change["after"]["first_step"] for change in found} == {"ESCALATE"}


def test_a_pool_that_one_document_names_is_compared_with_the_default_of_the_other(file: Any) -> None:
    answer = answered("diff", file(OBSERVE, "a"), file({**OBSERVE, "pools": {"h100": {"mode": "act"}}}, "b"))

    assert {change["pool"] for change in answer["faults"]} == {"h100"}


def test_a_knob_that_treats_no_fault_differently_is_told_all_the_same(file: Any) -> None:
    said = run("diff", file(ACT, "a"), file({**ACT, "probation_seconds": 7}, "b")).output

    assert "  probation_seconds: 3600 -> 7\n" in said
    assert "0 faults would be treated differently" in said


# show, apply, rollback -----------------------------------------------------------------------------------------------


def test_what_is_in_force_is_shown_as_it_was_applied(appconfig: FakeAppConfig, file: Any) -> None:
    text = '{ "default_pool":   {"mode": "act"} }'
    assert run("apply", file(text), "--why", "the pilot is over").exit_code == 0

    said = run("show")
    answer = answered("show")

    heading, shown = said.stderr.strip(), said.stdout.strip()
    assert heading.startswith(f"# version {version_of(ACT)}, AppConfig version 1, since 2026-03-01 03:00:00 UTC")
    assert heading.endswith(": the pilot is over")
    assert shown == text
    assert answer["document"] == ACT
    assert (answer["version"], answer["appconfig_version"], answer["deployment"]) == (version_of(ACT), 1, 1)
    assert answer["why"] == "ada: the pilot is over"
    assert json.loads(run("show", "-o", "json").stdout) == yaml.safe_load(run("show", "-o", "yaml").stdout) == answer


@pytest.mark.parametrize(("text", "document"), [("{", "{"), ('{"shoe_size": 44}', {"shoe_size": 44})])
def test_a_document_that_is_in_force_although_it_is_broken_can_be_looked_at(
    appconfig: FakeAppConfig, text: str, document: object
) -> None:
    PolicyDocuments(appconfig, PLACE).apply(text, "past the command")

    assert run("show").stderr.startswith("# version not valid (")
    assert answered("show")["document"] == document


def test_nothing_in_force_is_said_in_one_line(appconfig: FakeAppConfig) -> None:
    for words in (["show"], ["rollback", "--why", "x"]):
        result = run(*words)

        assert result.exit_code == 1
        assert result.output == "no policy document has been deployed yet\n"


def test_an_applied_document_is_told_with_its_version(appconfig: FakeAppConfig, file: Any) -> None:
    said = run("apply", file(ACT), "--why", "x").output
    result = run("apply", file(OBSERVE), "--why", "y", "--json")

    answer = json.loads(result.stdout)
    assert f"\nin force: policy version {version_of(ACT)} (AppConfig version 1)\n" in said
    assert said.endswith(" within a minute; `pools list` and `status` show it then\n")
    assert (answer["version"], answer["appconfig_version"], answer["why"]) == (version_of(OBSERVE), 2, "ada: y")
    assert "default_pool.mode: act -> observe" in result.stderr


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_what_changes_is_told_without_a_terminal_too(appconfig: FakeAppConfig, file: Any, yes: tuple[str, ...]) -> None:
    run("apply", file(OBSERVE), "--why", "x")

    said = CliRunner().invoke(app, ["policy", "apply", "-", "--why", "y", *yes], input=json.dumps(ACT))

    first, setting, faults, *_ = said.stdout.splitlines()
    assert said.exit_code == 0
    assert first == f"the policy in force is version {version_of(OBSERVE)}, the new one is version {version_of(ACT)}"
    assert setting == "  default_pool.mode: observe -> act"
    assert " faults would be treated differently" in faults


def test_an_applied_document_is_warned_of_by_what_it_changes(appconfig: FakeAppConfig, file: Any) -> None:
    quick = file({**OBSERVE, "deadlines": {"reboot_seconds": 1, "replace_seconds": 1}}, "quick.json")
    first = run("apply", quick, "--why", "x").output
    asks, slower = (file({"deadlines": {key: 2}}, f"{key}.json") for key in ("approval_seconds", "reboot_seconds"))

    merged = run("apply", asks, "--merge", "--why", "y").output
    changed = run("apply", slower, "--merge", "--why", "z").output

    assert (first.count("warning: "), "as before" in first) == (2, False)
    assert merged.count("warning: ") == merged.count("warning: deadlines.approval_seconds: 2 s is less") == 1
    assert "2 warnings as before: `nodeheal policy check FILE`" in merged
    assert changed.count("warning: ") == changed.count("warning: deadlines.reboot_seconds: 2 s is less") == 1


@pytest.mark.parametrize("more", [(), ("--merge",), ("--dry-run",), ("--yes",)])
def test_what_is_in_force_is_not_applied_again(appconfig: FakeAppConfig, file: Any, more: tuple[str, ...]) -> None:
    run("apply", file(ACT), "--why", "x")

    said = run("apply", file(json.dumps(ACT, indent=4)), "--why", "y", *more)
    answer = answered("apply", file(ACT), "--why", "y", *more)

    assert said.exit_code == 0
    assert said.output == f"policy version {version_of(ACT)} is already in force, nothing was changed\n"
    assert (answer["appconfig_version"], answer["why"]) == (1, "ada: x")
    assert len(appconfig.stored) == len(appconfig.deployments) == 1


def test_the_first_document_is_applied_even_if_it_is_empty(appconfig: FakeAppConfig, file: Any) -> None:
    assert run("apply", file({}), "--why", "x").exit_code == 0
    assert appconfig.stored == ["{}"]


def test_a_document_that_is_wrong_never_reaches_appconfig(appconfig: FakeAppConfig, file: Any) -> None:
    result = run("apply", file({"shoe_size": 44}), "--why", "x")

    assert result.exit_code == 2
    assert "shoe_size" in result.output
    assert appconfig.stored == []


def test_a_refusal_by_the_validator_is_one_line(appconfig: FakeAppConfig, file: Any) -> None:
    appconfig.validator = lambda text: "an older release knows no such knob"

    result = run("apply", file(ACT), "--why", "x")

    assert result.exit_code == 1
    assert result.stderr == "AppConfig refused version 1: an older release knows no such knob\n"


@pytest.mark.parametrize("words", [["apply", "FILE"], ["rollback"], ["apply", "FILE", "--why", ""]])
def test_a_change_needs_a_reason(appconfig: FakeAppConfig, file: Any, words: list[str]) -> None:
    result = run(*(file(ACT) if word == "FILE" else word for word in words))

    assert result.exit_code == 2
    assert "--why" in result.output
    assert appconfig.deployments == []


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_dry_run_of_a_rollback_says_what_it_would_change(
    appconfig: FakeAppConfig, file: Any, more: list[str]
) -> None:
    for document in (OBSERVE, ACT):
        run("apply", file(document), "--why", "x")

    said = run("rollback", "--dry-run", *more)

    assert said.exit_code == 0
    assert ("default_pool.mode: act -> observe" in said.output) is (not more)
    assert ('"knob": "default_pool.mode"' in said.output) is bool(more)
    assert len(appconfig.deployments) == 2


def test_an_edit_is_not_put_over_a_document_that_somebody_else_has_applied_meanwhile(
    appconfig: FakeAppConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    documents = PolicyDocuments(appconfig, PLACE)
    documents.apply(json.dumps(OBSERVE), "first")
    edited = tmp_path / "edited.json"

    def edit_slowly(text: str) -> Path:
        documents.apply(json.dumps({"diagnostics_level": 3}), "grace: meanwhile")
        edited.write_text(json.dumps(ACT))
        return edited

    monkeypatch.setattr("nodeheal.cli.policy._edited", edit_slowly)
    said = run("edit", "--why", "y", "--yes")

    assert said.exit_code == 1
    assert "nothing was changed: AppConfig version 2 is in force" in said.output
    assert "grace: meanwhile" in said.output
    assert edited.exists()
    assert len(appconfig.stored) == 2


def test_a_rollback_tells_what_is_in_force_then(appconfig: FakeAppConfig, file: Any) -> None:
    for document in (OBSERVE, ACT):
        run("apply", file(document), "--why", "x")

    result = run("rollback", "--why", "too early")

    assert "\n  default_pool.mode: act -> observe\n" in result.output
    assert f"\nin force: policy version {version_of(OBSERVE)} (AppConfig version 1)\n" in result.output
    assert answered("show")["why"] == "ada: too early"


def test_a_rollback_without_another_document_changes_nothing(appconfig: FakeAppConfig, file: Any) -> None:
    run("apply", file(ACT), "--why", "x")

    result = run("rollback", "--why", "too early")

    assert result.exit_code == 1
    assert result.output == "there is no policy document before version 1 that differs from it\n"
    assert len(appconfig.deployments) == 1


@pytest.mark.parametrize(
    "error",
    [
        NoRegionError(),
        ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}, "DescribeStacks"),
    ],
)
def test_what_aws_says_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(service: str) -> Any:
        raise error

    monkeypatch.setattr(connect, "client", refuse)

    result = run("show")

    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1
    assert ("no Region is set" if isinstance(error, NoRegionError) else str(error)) in result.output


def test_a_stack_that_is_not_deployed_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "client", {"appconfig": None, "cloudformation": FakeStacks(None)}.__getitem__)

    assert "has nodeheal been deployed in this account and Region?" in run("show").output


def test_the_command_waits_for_appconfig_and_not_longer_than_it_says(
    appconfig: FakeAppConfig, file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_documents, "DEPLOY_SECONDS", 0)

    assert "deployment 1 is not complete after 0 s" in run("apply", file(ACT), "--why", "x").output


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "policy.json"
    document.write_text('{"default_pool": {"mode": "observe"}, "default_pool": {"mode": "act"}}')

    result = CliRunner().invoke(app, ["policy", "check", str(document)])

    assert result.exit_code == 2
    assert "'default_pool' stands twice" in result.output


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"settle_seconds": 10**12}, "settle_seconds"),
        ({"breaker": {"window_seconds": 10**14}}, "breaker.window_seconds"),
        ({"lemon": {"window_seconds": 10**14}}, "lemon.window_seconds"),
        ({"breaker": {"min_nodes": 10, "max_nodes": 5}}, "breaker"),
        ({"settling": ["foo/bar"]}, "settling.0"),
        ({"correlation": {"secondary_faults": ["79"]}}, "correlation.secondary_faults.0"),
        ({"default_pool": {"modes": {"OBSERVE": "act"}}}, "default_pool"),
        (
            {
                "accelerator_limits": {
                    "RESTART_WORKLOAD": {"group": "RESTART_WORKLOAD", "limit": 1, "window_seconds": 60}
                }
            },
            "accelerator_limits: RESTART_WORKLOAD is not counted by accelerator",
        ),
        ({"pools": {"": {"mode": "act"}}}, "pools: a pool has no name"),
    ],
)
def test_a_knob_that_makes_no_sense_is_refused(tmp_path: Path, document: dict[str, object], named: str) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(document))

    result = CliRunner().invoke(app, ["policy", "check", str(file)])

    assert result.exit_code == 2
    assert f"policy.json: {named}" in result.output


def test_the_validator_refuses_what_check_refuses() -> None:
    with pytest.raises(ValueError, match="'default_pool' stands twice"):
        validate_policy('{"default_pool": {"mode": "observe"}, "default_pool": {"mode": "act"}}', {})


# round trip ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_show_prints_is_checked_compared_and_applied_as_it_is(
    file: Any, appconfig: FakeAppConfig, form: tuple[str, ...]
) -> None:
    run("apply", file(ACT), "--why", "x")
    shown = file(CliRunner().invoke(app, ["policy", "show", *form]).stdout, "shown.json")

    assert run("check", shown).output == f"{shown}: valid, version {version_of(ACT)}\n"
    assert answered("diff", shown)["knobs"] == []
    assert answered("diff", shown, file(OBSERVE))["versions"] == [version_of(ACT), version_of(OBSERVE)]
    assert run("apply", shown, "--why", "y").exit_code == 0
    assert answered("show")["document"] == ACT


def test_a_patch_of_one_pool_leaves_the_others(file: Any, appconfig: FakeAppConfig) -> None:
    before = {"default_pool": {"mode": "observe"}, "pools": {"gpt": {"mode": "act"}, "old": {"mode": "act"}}}
    run("apply", file(before), "--why", "x")

    said = run("apply", file({"pools": {"llama": {"mode": "act"}, "old": None}}), "--why", "y", "--merge")

    assert said.exit_code == 0
    assert answered("show")["document"] == {**before, "pools": {"gpt": {"mode": "act"}, "llama": {"mode": "act"}}}


def test_a_pool_that_is_new_in_a_patch_goes_by_default_pool_in_all_that_it_does_not_name(
    file: Any, appconfig: FakeAppConfig
) -> None:
    run("apply", file({"default_pool": {"mode": "act", "drills": True}}), "--why", "x")

    run("apply", file({"pools": {"demo": {"budget": {"max_nodes": 2}}}}), "--why", "y", "--merge")

    assert answered("show")["document"]["pools"]["demo"] == {"mode": "act", "drills": True, "budget": {"max_nodes": 2}}


def test_a_dry_run_shows_what_changes_and_changes_nothing(file: Any, appconfig: FakeAppConfig) -> None:
    run("apply", file(OBSERVE), "--why", "x")

    said = run("apply", file(ACT), "--why", "y", "--dry-run").output

    assert "default_pool.mode: observe -> act" in said
    assert "faults would be treated differently" in said
    assert said.endswith("dry run: nothing was changed\n")
    assert answered("apply", file(ACT), "--why", "y", "--dry-run")["knobs"] == [MODE_CHANGE]
    assert answered("show")["document"] == OBSERVE


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_shows_the_difference_and_asks(
    file: Any, appconfig: FakeAppConfig, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    run("apply", file(OBSERVE), "--why", "x")
    monkeypatch.setattr("typer.confirm", lambda text: answer)
    monkeypatch.setattr("nodeheal.cli.policy._is_terminal", lambda: True)

    said = run("apply", file(ACT), "--why", "y")

    assert (said.exit_code, "default_pool.mode: observe -> act" in said.output) == (0 if answer else 1, True)
    assert answered("show")["document"] == (ACT if answer else OBSERVE)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """The texts that `edit` has left on the disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: sorted(tmp_path.glob("nodeheal-policy-*"))


def test_what_the_editor_leaves_is_put_into_force(
    file: Any, appconfig: FakeAppConfig, monkeypatch: pytest.MonkeyPatch, kept: Callable[[], list[Path]]
) -> None:
    run("apply", file(OBSERVE), "--why", "x")
    monkeypatch.setenv("VISUAL", "true")
    unchanged = run("edit", "--why", "y")
    monkeypatch.setenv("VISUAL", "sed -i s/observe/act/")

    edited = run("edit", "--why", "y")

    assert unchanged.output == "nothing was changed\n"
    assert edited.exit_code == 0
    assert "lists them" not in edited.output
    assert answered("show")["document"] == ACT
    assert kept() == []


@pytest.mark.parametrize(
    ("editor", "told"),
    [
        ("/nonexist", "cannot be started (EDITOR=/nonexist): No such file or directory; set EDITOR to one"),
        ("'", "cannot be started (EDITOR='): No closing quotation; set EDITOR to one"),
        ("rm", "has deleted the file (EDITOR=rm): nothing was changed; edit again"),
        ("false", "ended with code 1 (EDITOR=false): nothing was changed; edit again, or set EDITOR to another"),
    ],
)
def test_an_editor_that_does_not_work_is_named_in_one_line(
    appconfig: FakeAppConfig,
    monkeypatch: pytest.MonkeyPatch,
    kept: Callable[[], list[Path]],
    editor: str,
    told: str,
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)

    result = run("edit", "--why", "y")

    assert (result.exit_code, len(result.output.splitlines())) == (2, 1), result.output
    assert told in result.output
    assert kept() == []


@pytest.mark.parametrize("editor", ["sed -i s/observe/destroy/", "sh -c 'sed -i s/observe/act/ $0; exit 3'"])
def test_a_text_that_did_not_come_into_force_is_kept_and_said_to_be(
    file: Any,
    appconfig: FakeAppConfig,
    monkeypatch: pytest.MonkeyPatch,
    kept: Callable[[], list[Path]],
    editor: str,
) -> None:
    run("apply", file(OBSERVE), "--why", "x")
    monkeypatch.setenv("VISUAL", editor)

    result = run("edit", "--why", "y")

    [left] = kept()
    assert (result.exit_code, f"`nodeheal policy apply {left} --why …`" in result.output) == (2, True), result.output
    assert answered("show")["document"] == OBSERVE


def test_an_edit_that_asks_names_the_command_that_lists_the_faults(
    file: Any, appconfig: FakeAppConfig, monkeypatch: pytest.MonkeyPatch, kept: Callable[[], list[Path]]
) -> None:
    run("apply", file(OBSERVE), "--why", "x")
    monkeypatch.setattr("typer.confirm", lambda text: False)
    monkeypatch.setattr("nodeheal.cli.policy._is_terminal", lambda: True)
    monkeypatch.setenv("VISUAL", "sed -i s/observe/act/")

    said = run("edit", "--why", "y")

    [left] = kept()
    assert (said.exit_code, f"`nodeheal policy diff {left} --json` lists them" in said.output) == (1, True)
    assert answered("diff", left)["faults"]


def test_a_pool_that_is_not_there_is_noted_where_the_account_is_asked(appconfig: FakeAppConfig, file: Any) -> None:
    run("apply", file(OBSERVE), "--why", "x")
    override = {"fault": "xid/79", "ladder": ["REPLACE"], "pools": ["demo", "dmeo"], "why": "they never come back"}
    path = file({**OBSERVE, "pools": {"nopool": {"mode": "act"}, "demo": {"mode": "act"}}, "overrides": [override]})
    note = (
        "note: pools nopool, dmeo are not known (known: demo); what the policy says of them applies once nodes are "
        "enrolled there"
    )

    told = [run("diff", path), run("apply", path, "--dry-run"), run("apply", path, "--dry-run", "--json")]

    for said in told:
        notes = [line for line in said.output.splitlines() if line.startswith("note: ")]
        assert notes == [note]
    assert "note: " not in told[2].stdout
    assert json.loads(told[2].stdout)["faults"]
    assert run("diff", file(OBSERVE), path).output.count("note: ") == 0


def test_a_note_on_pools_that_cannot_be_read_stops_nobody(
    appconfig: FakeAppConfig, file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(table: str) -> Any:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}, "Query")

    monkeypatch.setattr(connect, "ports", refuses)

    assert run("apply", file({**ACT, "pools": {"nopool": {"mode": "act"}}}), "--why", "x").exit_code == 0


def test_a_field_that_is_mistyped_is_told_with_the_one_that_was_meant(file: Any) -> None:
    assert (
        "pools.x.budgte: there is no such field; did you mean `budget`?"
        in run("check", file({"pools": {"x": {"budgte": {}}}})).output
    )
