"""The generated pages: complete, rendered as tables, every link leads somewhere, every example is valid."""

import json
import re
from collections import Counter

import pytest

from nodeheal.contract.vocabulary import Action, Family, NextStepCondition, Scope, Verdict
from nodeheal.domain.faults.catalog import catalog
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from tools import fault_reference, policy_reference, reference, threshold_reference

FAULTS = fault_reference.faults()
POLICY = policy_reference.policy()
THRESHOLDS = threshold_reference.thresholds()
# GitHub cuts what it renders at 512,000 bytes.
RENDERED_BYTES = 500_000
KNOBS = dict(policy_reference.knobs())


def cells(line: str) -> list[str]:
    """The cells of a table's line; an escaped bar does not divide."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def tables(page: str) -> list[list[str]]:
    """The lines of each table."""
    blocks = re.split(r"\n\n+", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    return [lines for block in blocks if (lines := block.splitlines())[0].startswith("|")]


def examples(page: str) -> list[str]:
    return re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)


def heading_anchors(page: str) -> set[str]:
    """As GitHub makes them, of headings in plain words."""
    return {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)}


def test_every_page_is_among_those_whose_freshness_is_tested() -> None:
    names = {path.name for path in reference.render()}

    pages = {"faults.md", "iam.md", "job.md", "policy.md", "state-machines.md", "thresholds.md"}
    assert names == {*pages, "policy.schema.json"}


def test_every_fault_has_one_anchor() -> None:
    anchors = Counter(re.findall(r'<a id="([^"]+)">', FAULTS))

    assert max(anchors.values()) == 1
    assert {fault_reference.anchor(row) for row in catalog().values()} <= set(anchors)
    assert {"xid-79", "xid-145-RLW_REMAP-0x00000004", "ib-LINK_DOWN", "ib-link_down"} <= set(anchors)


@pytest.mark.parametrize("page", [FAULTS, POLICY, THRESHOLDS], ids=["faults", "policy", "thresholds"])
def test_every_link_leads_somewhere(page: str) -> None:
    anchors = set(re.findall(r'<a id="([^"]+)">', page)) | heading_anchors(page)
    names = {path.name for path in reference.render()}

    links = re.findall(r"(?<!\\)\]\(([^)]+)\)", page)

    assert links
    assert [link for link in links if link.startswith("#") and link[1:] not in anchors] == []
    assert [link for link in links if not link.startswith("#") and link not in names] == []


@pytest.mark.parametrize("page", [FAULTS, POLICY, THRESHOLDS], ids=["faults", "policy", "thresholds"])
def test_every_line_of_a_table_has_as_many_cells_as_its_head(page: str) -> None:
    wrong = [line for table in tables(page) for line in table if len(cells(line)) != len(cells(table[0]))]

    assert tables(page)
    assert wrong == []


def test_a_bar_in_a_text_does_not_divide_its_cell() -> None:
    assert [len(cells(line)) for line in POLICY.splitlines() if "nvrm_other" in line and line.startswith("|")] == [6]


def test_a_row_tells_what_the_catalog_says() -> None:
    line = next(line for line in FAULTS.splitlines() if '<a id="xid-63">' in line)
    row = catalog()["xid", "63", ""]

    code, fault, reach, done, keep, why, source = cells(line)

    assert code == '<a id="xid-63"></a>[63](#xid-63)'
    assert row.name in fault
    assert "A100, H100, B100, GB200" in fault
    assert reach == "accelerator, DEGRADED"
    assert done == "**OBSERVE**; after the job: REBOOT; REPLACE"
    assert keep == ", ".join(row.keep)
    assert keep.startswith("kernel_log")
    assert row.why in why
    assert row.source in source


def test_a_reason_that_several_faults_have_is_said_by_the_first_and_linked_by_the_others() -> None:
    reasons = {
        row.key: cells(next(line for line in FAULTS.splitlines() if f'<a id="{fault_reference.anchor(row)}">' in line))[
            5
        ]
        for row in (catalog()["xid", "1", ""], catalog()["xid", "2", ""])
    }

    assert catalog()["xid", "1", ""].why == catalog()["xid", "2", ""].why
    assert reasons == {"xid/1": catalog()["xid", "1", ""].why, "xid/2": "As [xid/1](#xid-1)"}


def test_an_end_that_many_meanings_share_is_two_words_in_a_row_and_whole_in_the_introduction() -> None:
    introduction, _ = FAULTS.split("## At a glance")
    line = next(line for line in FAULTS.splitlines() if '<a id="xid-1">' in line)
    end = "the vendor marks the code as unused since Ampere, so no current data-center GPU should print it."

    assert catalog()["xid", "1", ""].meaning.endswith(f"; {end}")
    assert f"- *Unused*: {end}" in introduction
    assert ". *Unused.*|" in line
    assert end not in line


def test_what_most_rows_of_a_table_have_stands_before_it_and_not_in_them() -> None:
    row = catalog()["xid", "145", "RLW_REMAP/0x00000004"]
    before, _ = FAULTS.split(f'<a id="{fault_reference.anchor(row)}"></a>')
    usual = next(line for line in reversed(before.splitlines()) if line.startswith("Unless a row says otherwise:"))
    line = next(line for line in FAULTS.splitlines() if f'<a id="{fault_reference.anchor(row)}">' in line)

    _, fault, _, _, keep, _, source = cells(line)

    assert usual == (
        f"Unless a row says otherwise: *On:* {', '.join(row.products)}. *Keep:* {', '.join(row.keep)}."
        f" *Source:* {row.source}."
    )
    assert "On:" not in fault
    assert keep == source == ""


def test_the_reason_of_each_fault_stands_on_the_page() -> None:
    assert [row.key for row in catalog().values() if fault_reference.linked(row.why, row) not in FAULTS] == []


def test_a_ladder_that_begins_with_a_reset_says_that_a_reboot_stands_for_it() -> None:
    told = fault_reference.done(catalog()["xid", "154", "GPU_RESET"])

    assert told == "**RESET_GPU (or a REBOOT, where it is off)**; REBOOT; REPLACE"


def test_another_xid_in_a_text_is_a_link_and_its_own_is_not() -> None:
    line = next(line for line in FAULTS.splitlines() if '<a id="xid-171">' in line)

    assert "[Xid 48](#xid-48)" in line
    assert line.count("(#xid-171)") == 1


def test_subcodes_stand_under_their_code() -> None:
    _, section = FAULTS.split("### xid/145: ")

    own = [row for row in catalog().values() if row.code == "145" and row.subcode]

    first_table = tables(section)[0]
    assert len(first_table) == len(own) + 2
    assert all(f'id="{fault_reference.anchor(row)}"' in line for row, line in zip(own, first_table[2:], strict=True))


def test_the_summary_counts_every_fault_once() -> None:
    summary = next(table for table in tables(FAULTS) if table[0].startswith("|family|"))

    counts = {line[0]: [int(cell or 0) for cell in line[1:]] for line in map(cells, summary[2:])}

    assert counts["all"][0] == len(catalog())
    assert all(sum(numbers[1:]) == numbers[0] for numbers in counts.values())
    assert [sum(column) for column in zip(*counts.values(), strict=True)] == [2 * number for number in counts["all"]]


def test_every_word_of_the_vocabulary_is_explained() -> None:
    explained = {cells(line)[0] for table in tables(FAULTS) for line in table}

    words = [word.value for kind in (Action, NextStepCondition, Scope, Verdict) for word in kind]

    assert [word for word in words if word not in explained] == []
    assert [family for family in Family if f"(#family-{family.value})" not in FAULTS] == []


def test_the_page_is_not_too_long_to_be_rendered() -> None:
    assert len(FAULTS.encode()) < RENDERED_BYTES


def test_every_knob_stands_on_the_page_with_its_meaning() -> None:
    lines = {cells(line)[0].strip("`"): cells(line) for table in tables(POLICY) for line in table}

    assert [path for path in KNOBS if path not in lines] == []
    assert [path for path in KNOBS if not lines[path][4].strip()] == []
    assert [path for path in KNOBS if not lines[path][1].strip()] == []


def test_every_number_says_what_it_counts() -> None:
    schema = RecoveryPolicy.model_json_schema()
    models = {"RecoveryPolicy": schema, **schema["$defs"]}
    sections = dict(re.findall(r"### (\w+)\n(.*?)(?=\n### |\Z)", POLICY, flags=re.DOTALL))

    units = {
        f"{model}.{knob}": next(cells(line)[2] for line in sections[model].splitlines() if f"{knob}`|" in line)
        for model, about in models.items()
        for knob, said in about.get("properties", {}).items()
        if {"integer", "number"} & {said.get("type"), *(one.get("type") for one in said.get("anyOf", []))}
    }

    assert len(units) > 25
    assert [knob for knob, unit in units.items() if not unit] == []
    assert units["PoolPolicy.diagnostics_level"] == "level"
    assert units["MaintenanceWindow.minutes"] == "minutes"


def test_a_knob_shows_default_and_bounds() -> None:
    line = next(line for line in POLICY.splitlines() if line.startswith("|`breaker.percent`"))

    assert cells(line)[1:] == ["number", "percent", "`10.0`", "of the pool's nodes, between those two", "> 0, ≤ 100"]


def test_every_example_of_a_policy_is_valid() -> None:
    found = examples(POLICY) + examples(FAULTS)

    assert len(found) == 2
    for text in found:
        RecoveryPolicy.model_validate_json(text)


def test_the_example_shows_what_the_page_explains() -> None:
    document = RecoveryPolicy.model_validate_json(policy_reference.EXAMPLE)

    assert document.pool("h100").mode_of(Action.RESET_GPU) is Mode.act
    assert document.pool("h100").mode_of(Action.REPLACE) is Mode.approve
    assert document.pool("any").mode_of(Action.REBOOT) is Mode.observe
    assert document.override("xid/94", "h100") is not None
    assert document.override("xid/94", "any") is None
    assert document.opted_out
    assert document.pool("h100").maintenance


def test_the_schema_is_that_of_the_document() -> None:
    schema = json.loads(policy_reference.schema())

    assert schema == RecoveryPolicy.model_json_schema()
    assert set(schema["properties"]) == set(RecoveryPolicy.model_fields)
    assert schema["additionalProperties"] is False
