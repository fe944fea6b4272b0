"""What we are built of: pinned with hashes, under licences that one may ship, and audited as far as one can ask."""

import json
import re
from pathlib import Path

import pytest

from stacks.settings import REPOSITORY
from stacks.wheelhouse import AGENT_PINS, PIP_PINS
from tools import audit, licences
from tools.licences import LOCKS, NODE_LOCK, PERMISSIVE, WEAK_COPYLEFT, licence_of, parts, pinned

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
SOURCES = {path: path.with_suffix(".in") for path in LOCKS.values()}
# The agent needs no package; pip, which installs it, needs none either.
FEWEST_PINS = {AGENT_PINS: 0, PIP_PINS: 1}


def blocks(lock: Path) -> list[str]:
    """Each pin with its hashes."""
    text = "\n".join(line for line in lock.read_text("utf-8").splitlines() if not line.lstrip().startswith("#"))
    return [block for block in re.split(r"\n(?=\S)", text) if block.strip()]


@pytest.mark.parametrize("lock", LOCKS.values(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_pin_has_one_version_and_hashes(lock: Path) -> None:
    found = blocks(lock)

    assert len(found) >= len(pinned(lock)) >= FEWEST_PINS.get(lock, 6)
    assert [block.split()[0] for block in found if "==" not in block or not _HASH.search(block)] == []


@pytest.mark.parametrize("lock", LOCKS.values(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_lock_file_names_where_packages_come_from(lock: Path) -> None:
    text = lock.read_text("utf-8") + SOURCES[lock].read_text("utf-8")

    assert re.findall(r"--(?:index-url|extra-index-url|find-links|trusted-host)|https?://", text) == []


def test_a_package_has_one_version_in_all_lock_files() -> None:
    versions: dict[str, set[str]] = {}
    for lock in LOCKS.values():
        for block in blocks(lock):
            pin = block.partition("\\")[0]  # with its marker: newer Pythons may have a newer version
            name, _, version = pin.partition(" ;")[0].partition("==")
            versions.setdefault(f"{name.strip()} {pin.partition(' ;')[2].strip()}", set()).add(version.strip())

    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_the_cdk_cli_is_pinned_with_its_hash() -> None:
    packages = {place: about for place, about in json.loads(NODE_LOCK.read_text("utf-8"))["packages"].items() if place}

    assert packages
    assert [place for place, about in packages.items() if not about["integrity"].startswith("sha512-")] == []


def test_the_page_of_licences_is_fresh() -> None:
    assert licences.PAGE.read_text("utf-8") == licences.page()


def test_every_licence_is_known_and_lets_us_ship() -> None:
    found = parts()

    assert len(found) > 80
    assert [part.name for part in found if not any(one <= PERMISSIVE | WEAK_COPYLEFT for one in part.choices)] == []


def test_what_is_deployed_is_under_permissive_licences_alone() -> None:
    tools = {"for tests, sandbox and tools", "to deploy"}
    deployed = [part for part in parts() if part.use not in tools]

    assert {part.name for part in deployed} >= {"pydantic", "aws-lambda-powertools", "pip"}
    assert [part.name for part in deployed if not any(one <= PERMISSIVE for one in part.choices)] == []


def test_of_the_tools_that_deploy_only_the_build_backend_has_a_part_under_another_licence() -> None:
    tools = [part for part in parts() if part.use == "to deploy"]

    assert {part.name for part in tools} >= {"aws-cdk-lib", "boto3", "hatchling"}
    assert [part.name for part in tools if not any(one <= PERMISSIVE for one in part.choices)] == ["pathspec"]


@pytest.mark.parametrize(
    ("expression", "said", "classifier", "licence"),
    [
        ("MIT OR GPL-3.0-only", "", "", "MIT OR GPL-3.0-only"),
        ("", "Apache License 2.0", "", "Apache-2.0"),
        ("", "", "License :: OSI Approved :: MIT License", "MIT"),
        ("", "GNU GPL v3", "", ""),
        ("", "", "", ""),
    ],
)
def test_a_licence_that_is_not_known_is_none(expression: str, said: str, classifier: str, licence: str) -> None:
    assert licence_of(expression, said, [classifier]) == licence


def test_an_advisory_fails_the_audit_and_names_the_cure() -> None:
    advisory = {"id": "PYSEC-1", "fix_versions": ["2.0"]}
    report = {
        "dependencies": [{"name": "leaky", "version": "1.0", "vulns": [advisory]}, {"name": "x", "skip_reason": "?"}]
    }

    assert audit.verdict("requirements.txt", report) == (1, ["requirements.txt: leaky 1.0: PYSEC-1, fixed in 2.0"])


def test_what_could_not_be_asked_about_is_not_called_clean() -> None:
    skipped = {"dependencies": [{"name": "x", "skip_reason": "not found"}, {"name": "y", "version": "1", "vulns": []}]}

    code, [line] = audit.verdict("requirements.txt", skipped)

    assert code == 2
    assert line.startswith("requirements.txt: 1 of 2 packages not audited")
    assert audit.verdict("requirements.txt", None, "no network")[0] == 2


def test_a_clean_audit_says_how_many() -> None:
    report = {"dependencies": [{"name": "y", "version": "1", "vulns": []}]}

    assert audit.verdict("requirements.txt", report) == (0, ["requirements.txt: 1 packages, no advisories"])
