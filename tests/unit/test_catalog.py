"""The catalog as data: every row is sound, no fault is forgotten, and no action changes unnoticed.

What a fault asks for stands twice: in the catalog, and here (by hand for the faults that vendors disagree about or that
kill a GPU, in tests/golden/fault_actions.csv for every fatal one). To change an action, change both, on purpose.
"""

import csv
import re
from importlib import resources
from pathlib import Path

import pytest

from nodeheal.contract.vocabulary import Action, Family, NextStepCondition, Verdict
from nodeheal.domain.faults.catalog import (
    ANY_CODE,
    CatalogRow,
    Rows,
    catalog,
    find,
    generation_of,
    parse_catalog,
    verdict,
)
from nodeheal.domain.verbs import DISRUPTIVENESS, VERBS

GOLDEN = Path(__file__).parents[1] / "golden"
CSV = resources.files("nodeheal.domain.faults").joinpath("catalog.csv")
GENERATIONS = {"A100", "H100", "B100", "GB200"}
DESTRUCTIVE = {Action.RESET_GPU, Action.REBOOT, Action.REPLACE, Action.ISOLATE}
EVIDENCE = {
    *("kernel_log", "nvidia_smi", "dcgm_health", "dcgm_diag", "nvlink_status", "fabric_manager_log", "neuron_counters"),
    *("neuron_ls", "nic_counters", "fi_info", "pcie_topology", "edac", "process_list", "memory_usage", "job_log"),
    *("service_status", "bug_report", "console_log"),
}

RESTART = "RESTART_WORKLOAD REBOOT REPLACE"
REBOOT = "REBOOT REPLACE"
RESET = "RESET_GPU REBOOT REPLACE"

# Typed by hand, from the settled disagreements: not from the catalog.
SETTLED: dict[str, tuple[str, str]] = {
    "13": (RESTART, "other_job"),
    "31": (RESTART, "other_job"),
    "43": (RESTART, "other_job"),
    "45": ("OBSERVE", "unproven"),
    "48": (REBOOT, "unproven"),
    "63": ("OBSERVE REBOOT REPLACE", "job_end"),
    "64": ("REPLACE", "unproven"),
    "73": (REBOOT, "unproven"),
    "74": ("REPLACE", "unproven"),
    "79": (REBOOT, "unproven"),
    "94": (RESTART, "repeated"),
    "95": (REBOOT, "unproven"),
    "109": (RESTART, "repeated"),
    "119": (REBOOT, "unproven"),
    "120": (REBOOT, "unproven"),
    "140": (REBOOT, "unproven"),
    "154": ("ESCALATE", "unproven"),
    "154/NONE": ("OBSERVE", "unproven"),
    "154/GPU_RESET": (RESET, "unproven"),
    "154/NODE_REBOOT": (REBOOT, "unproven"),
    "154/DRAIN_P2P": (RESTART, "repeated"),
    "154/DRAIN_AND_RESET": (RESET, "unproven"),
    "74/signal": ("REPLACE", "unproven"),
    "74/parity": ("REPLACE", "unproven"),
    "74/reset": (REBOOT, "unproven"),
    "74/secondary": (REBOOT, "unproven"),
    "74/ecc_limit": ("OBSERVE", "unproven"),
    "74/ignorable": ("OBSERVE", "unproven"),
    "154/RECOVER_IMEX_DOMAIN": ("ESCALATE", "unproven"),
    **{str(code): ("OBSERVE", "unproven") for code in (162, 163, 164, 165, 168, 170, 176)},
    **{str(code): ("ESCALATE", "unproven") for code in (51, 166, 167, 169, 171, 172, 174)},
    "173": (REBOOT, "unproven"),
    "175": (REBOOT, "unproven"),
}

# The other fatal ones, by hand too. 54: a cable is out. 78: versions do not fit. 142: nobody names a cure.
FATAL: dict[str, tuple[str, str]] = {
    **{str(code): (REBOOT, "unproven") for code in (46, 62, 110, 136, 143, 150, 151, 155, 156, 158)},
    "54": ("ISOLATE", "unproven"),
    "78": ("ESCALATE", "unproven"),
    "142": ("ESCALATE", "unproven"),
}

# Whose word differs from ours, and must be told in the row's reason.
DISAGREE = {
    "13": ("vendor", "EKS", "k8s-device-plugin"),
    "31": ("vendor", "EKS"),
    "43": ("vendor",),
    "45": ("vendor",),
    "48": ("vendor", "EKS"),
    "63": ("vendor", "EKS", "Azure"),
    "64": ("vendor", "EKS", "Azure"),
    "73": ("vendor", "HyperPod"),
    "74": ("vendor", "EKS", "HyperPod"),
    "79": ("vendor", "EKS"),
    "94": ("vendor", "EKS"),
    "95": ("vendor", "EKS"),
    "109": ("vendor", "EKS", "k8s-device-plugin"),
    "119": ("vendor", "EKS"),
    "120": ("vendor", "EKS"),
    "140": ("vendor", "EKS"),
    "154": ("vendor",),
    "154/DRAIN_P2P": ("vendor", "NVSentinel"),
    **{str(code): ("vendor",) for code in (162, 163, 164, 165, 168, 170)},
    **{str(code): ("vendor", "human") for code in (166, 167, 169, 171, 172)},
}


def rows() -> list[CatalogRow]:
    return list(catalog().values())


def wrong(is_wrong: dict[str, bool]) -> list[str]:
    return [key for key, value in is_wrong.items() if value]


def lines(file: str) -> list[str]:
    return (GOLDEN / file).read_text("utf-8").split()


def treatment(row: CatalogRow) -> tuple[str, str]:
    return " ".join(row.ladder), row.next_rung.value


def xid(spelled: str) -> CatalogRow:
    code, _, subcode = spelled.partition("/")
    return catalog()["xid", code, subcode]


def test_the_file_has_a_row_for_every_line_in_order_of_families() -> None:
    records = list(csv.DictReader(CSV.read_text("utf-8").splitlines(), strict=True))

    families = [record["family"] for record in records]

    assert len(records) == len(rows())
    assert families == sorted(families, key=[family.value for family in Family].index)
    assert set(families) == {family.value for family in Family} - {Family.own}


@pytest.mark.parametrize("text", ["code", "name", "meaning", "ladder", "why", "source"])
def test_no_text_of_a_row_is_empty(text: str) -> None:
    head = ["family", "code", "verdict", "ladder", "next_rung", "scope", "name", "meaning", "why", "source"]
    empty = ["subcode", "keep", "products", "drivers"]
    values = [
        "xid",
        "1",
        "OK",
        "OBSERVE",
        "unproven",
        "node",
        "A title",
        "A sentence.",
        "A reason.",
        "A book",
    ]
    record = dict(zip(head + empty, values + [""] * len(empty), strict=True))

    whole = parse_catalog("\n".join([",".join(record), ",".join(record.values())]))

    assert len(whole) == 1
    with pytest.raises(ValueError, match=f"line 2: {text} is empty"):
        parse_catalog("\n".join([",".join(record), ",".join((record | {text: " "}).values())]))


def test_a_ladder_goes_up_from_its_first_action() -> None:
    levels = {row.key: [DISRUPTIVENESS[rung] for rung in row.ladder] for row in rows()}

    assert not wrong({key: level != sorted(set(level)) for key, level in levels.items()})


def test_the_budget_group_is_the_one_that_the_first_action_spends() -> None:
    groups = {action: verb.budget_group for action, verb in VERBS.items() if verb.budget_group}

    assert groups == {
        Action.RESET_GPU: Action.RESET_GPU,
        Action.REBOOT: Action.REBOOT,
        Action.STOP_START: Action.STOP_START,
        Action.REPLACE: Action.REPLACE,
        Action.RESTART_WORKLOAD: Action.RESTART_WORKLOAD,
    }


def test_only_a_ladder_with_a_second_step_says_what_makes_it_come() -> None:
    waits = {row.key: row.next_rung is not NextStepCondition.unproven for row in rows() if len(row.ladder) == 1}

    assert not wrong(waits)


def test_what_is_only_watched_climbs_for_a_reason_of_its_own() -> None:
    climbs = [row for row in rows() if row.action is Action.OBSERVE and len(row.ladder) > 1]

    assert climbs
    assert not wrong({row.key: row.next_rung is NextStepCondition.unproven for row in climbs})


def test_what_is_well_or_unknown_is_never_rebooted() -> None:
    calm = [row for row in rows() if row.verdict in (Verdict.OK, Verdict.UNKNOWN)]

    assert not wrong({row.key: bool(DESTRUCTIVE & set(row.ladder)) for row in calm})
    assert not wrong({row.key: row.ladder != (Action.OBSERVE,) for row in calm if row.verdict is Verdict.OK})


def test_a_driver_that_asks_for_nothing_reports_no_fault() -> None:
    said = [xid("154/NONE"), catalog()["nvml", "RECOVERY_ACTION", "NONE"]]

    assert [row.verdict for row in said] == [Verdict.OK, Verdict.OK]


def test_what_has_failed_and_is_only_watched_is_a_short_list() -> None:
    watched = {row.key for row in rows() if row.verdict is Verdict.FAILED and row.ladder == (Action.OBSERVE,)}

    # Forced down from the host's side.
    assert watched == {"xid/149/NETIR_LINK_EVT/40"}


def test_no_row_promises_a_human_and_then_closes_the_incident() -> None:
    closed = [row for row in rows() if row.ladder == (Action.OBSERVE,)]

    assert not wrong({row.key: "human" in row.why for row in closed})


def test_every_text_is_a_sentence_and_every_name_a_title() -> None:
    sentences = {f"{row.key} {text}": text for row in rows() for text in (row.meaning, row.why)}

    assert not wrong({key: not re.search(r"\.\)?$", text) for key, text in sentences.items()})
    assert not wrong({row.key: row.name.endswith(".") or len(row.name) > 60 for row in rows()})
    assert not wrong({key: text != text.strip() or not text.isascii() for key, text in sentences.items()})


def test_no_two_codes_share_name_and_meaning() -> None:
    told: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in rows():
        told.setdefault((row.name, row.meaning), set()).add((row.family, row.code))

    assert [codes for codes in told.values() if len(codes) > 1] == []


def test_no_reason_only_points_at_another_row() -> None:
    pointers = {row.key: re.fullmatch(r"As for [^:;]*\.( \(.*\))?", row.why) is not None for row in rows()}

    assert not wrong(pointers)


def test_products_are_generations_that_the_core_tells_apart() -> None:
    named = {product for row in rows() for product in row.products}

    assert named == GENERATIONS
    assert {generation_of(product) for product in named} == GENERATIONS


def test_every_row_names_known_evidence_to_keep() -> None:
    assert not wrong({row.key: not set(row.keep) <= EVIDENCE or not row.keep for row in rows()})


@pytest.mark.parametrize("spelled", DISAGREE)
def test_a_settled_disagreement_names_who_disagrees(spelled: str) -> None:
    why = xid(spelled).why

    assert not wrong({name: name not in why for name in DISAGREE[spelled]})


def test_a_subcode_falls_back_to_its_unit_and_then_to_its_code() -> None:
    exact = find(Family.xid, "145", "RLW_REMAP/0x00000100")
    unit = find(Family.xid, "145", "RLW_REMAP/0x00004000")
    code = find(Family.xid, "145", "NO_SUCH_UNIT/0x00000001")

    assert [row and row.subcode for row in (exact, unit, code)] == ["RLW_REMAP/0x00000100", "RLW_REMAP", ""]
    assert find(Family.xid, "79", "whatever") is find(Family.xid, "79")


@pytest.mark.parametrize(
    ("family", "code"), [(Family.xid, "178"), (Family.xid, "0"), (Family.sxid, "79"), (Family.oom, "")]
)
def test_a_code_that_is_not_there_is_none(family: Family, code: str) -> None:
    assert find(family, code) is None
    assert find(family, code, "RLW_REMAP/0x00000001") is None


def test_every_code_with_subcodes_has_a_row_of_its_own() -> None:
    divided = {(row.family.value, row.code) for row in rows() if row.subcode and row.code != ANY_CODE}

    assert not wrong({"/".join(pair): (*pair, "") not in catalog() for pair in divided})


def test_every_xid_has_a_row_and_no_other() -> None:
    codes = {int(row.code) for row in rows() if row.family is Family.xid}

    assert codes == set(range(1, 178))  # driver 595 ends at 176; 177 is known by its number only


def test_every_nvlink_5_status_of_the_vendor_has_a_row() -> None:
    statuses = lines("nvlink5_subcodes.txt")

    assert len(set(statuses)) == 95
    assert not wrong({status: ("xid", *status.split("/", 1)) not in catalog() for status in statuses})


def test_every_sxid_has_a_row_and_no_other() -> None:
    frozen = lines("sxid_codes.txt")

    assert len(frozen) == 93  # two sources name 92 each, not the same
    assert sorted(frozen) == sorted(row.code for row in rows() if row.family is Family.sxid and row.code != ANY_CODE)


@pytest.mark.parametrize(
    ("code", "subcode", "key"),
    [
        ("20034", "fatal", "sxid/20034"),  # the guide agrees with the line
        ("20009", "nonfatal", "sxid/20009"),
        ("20034", None, "sxid/20034"),  # the line does not say
        ("20035", "fatal", "sxid/any/fatal"),  # the guide does not know the number
        ("28006", "nonfatal", "sxid/any/nonfatal"),
        *((code, "fatal", "sxid/any/fatal") for code in ("19049", "19055", "19057", "19059")),  # they disagree
        *((code, "nonfatal", "sxid/any/nonfatal") for code in ("19048", "19056", "19058", "19061", "19064", "19067")),
    ],
)
def test_the_line_of_a_switch_error_wins_over_the_guide(code: str, subcode: str | None, key: str) -> None:
    row = find(Family.sxid, code, subcode)

    assert row is not None
    assert row.key == key
    assert row.ladder == find(Family.sxid, "20034").ladder or row.verdict is Verdict.DEGRADED  # type: ignore[union-attr]
    assert verdict(Family.sxid, code, subcode) is row.verdict


def test_every_error_of_dcgm_has_a_row() -> None:
    frozen = set(lines("dcgm_errors.txt"))

    codes = {row.code for row in rows() if row.family is Family.dcgm}

    assert len(frozen) == 134
    assert frozen - codes == set()
    newer = {
        *("DCGM_FR_GPU_RECOVERY_IMEX_DOMAIN", "DCGM_FR_RETEST_REQUESTED"),
        *("DCGM_FR_CONTAINED_ERROR", "DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT"),
    }
    assert {code for code in codes - frozen if code.startswith("DCGM_FR_")} == newer


@pytest.mark.parametrize("file", ["kernel_logs/codes.txt", "tools/codes.txt"])
def test_every_code_that_a_parser_emits_has_a_row(file: str) -> None:
    emitted = [(*spelled.split("/", 2), "")[:3] for spelled in lines(file)]

    assert emitted
    assert not wrong({"/".join(key): key not in catalog() for key in emitted})


@pytest.mark.parametrize("spelled", [*SETTLED, *FATAL])
def test_a_grave_xid_asks_for_what_was_settled(spelled: str) -> None:
    assert treatment(xid(spelled)) == {**SETTLED, **FATAL}[spelled]


def test_no_fatal_fault_changes_its_action_unless_the_golden_file_does() -> None:
    with (GOLDEN / "fault_actions.csv").open(encoding="utf-8", newline="") as file:
        frozen = {record["fault"]: (record["ladder"], record["next_rung"]) for record in csv.DictReader(file)}

    fatal = {
        row.key: treatment(row) for row in rows() if row.verdict is Verdict.FAILED or DESTRUCTIVE & set(row.ladder)
    }

    assert fatal == frozen


def test_a_row_that_stands_twice_is_refused_by_its_line() -> None:
    header, first, *_ = CSV.read_text("utf-8").splitlines()

    with pytest.raises(ValueError, match="line 3: xid/1 stands twice"):
        parse_catalog("\n".join([header, first, first]))


def test_a_product_of_the_same_generation_shares_its_codes() -> None:
    known: Rows = catalog()

    only_hopper = known["xid", "136", ""]

    assert [only_hopper.applies_to(name) for name in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", None)] == [
        True,
        False,
        True,
    ]


def test_the_verdict_alone_is_the_verdict_of_the_row_that_is_found() -> None:
    keys = [(row.family, row.code, row.subcode) for row in catalog().values()]
    strange = [(family, code, f"{subcode}/nobody/knows") for family, code, subcode in keys]

    for key in [*keys, *strange, (Family.xid, "79", None), (Family.xid, "none", None), (Family.host, "79", "x")]:
        row = find(*key)
        assert verdict(*key) == (row.verdict if row else None), key
