"""What is known of a node's EFA and InfiniBand devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.efa_tools import EFA_COUNTERS, IB_COUNTERS, parse_efa, parse_efa_tree
from nodeheal.parsers.finding import ToolReport
from tests.support.goldens import cut_off, golden, names

ROOT = "/sys/class/infiniband"


def found(report: ToolReport) -> list[tuple[Family, str, str | None]]:
    return [(finding.family, finding.code, finding.component) for finding in report.findings]


def devices(name: str) -> int:
    return 2 if name.startswith("ib_") else 4


def tree(state: str = "4: ACTIVE\n", **counts: int) -> dict[str, str]:
    """Two EFA devices; the first with this state and these counts."""
    paths = {}
    for number in range(2):
        port = f"{ROOT}/rdmap{number}s0/ports/1"
        paths[f"{port}/state"] = "4: ACTIVE\n" if number else state
        paths |= {f"{port}/hw_counters/{name}": "0\n" for name in EFA_COUNTERS}
        paths[f"{port}/hw_counters/rx_bytes"] = "918273\n"
    return paths | {f"{ROOT}/rdmap0s0/ports/1/hw_counters/{name}": str(count) for name, count in counts.items()}


@pytest.mark.parametrize("name", names("efa_*_healthy.txt", "ib_*_healthy.txt"))
def test_a_healthy_recording_is_healthy(name: str) -> None:
    report = parse_efa(golden(name), devices(name))

    assert (report.verdict, report.findings) == (Verdict.OK, ())


@pytest.mark.parametrize("counter", EFA_COUNTERS)
def test_an_error_counter_above_zero_degrades_since_one_reading_has_no_rate(counter: str) -> None:
    report = parse_efa_tree(tree("4: ACTIVE", **{counter: 7}))

    assert (report.verdict, found(report)) == (Verdict.DEGRADED, [(Family.efa, counter, "rdmap0s0")])
    assert "no rate" in report.reason


def test_rdma_tells_the_same_as_the_files() -> None:
    assert found(parse_efa(golden("efa_rdma_sick.txt"))) == [
        (Family.efa, "retrans_timeout_events", "rdmap80s0"),
        (Family.efa, "unresponsive_remote_events", "rdmap80s0"),
        (Family.efa, "rx_drops", "rdmap97s0"),
    ]


@pytest.mark.parametrize("counter", IB_COUNTERS)
def test_infiniband_counts_for_itself(counter: str) -> None:
    report = parse_efa_tree({f"{ROOT}/mlx5_0/ports/1/counters/{counter}": "2"})

    assert (report.verdict, found(report)) == (Verdict.DEGRADED, [(Family.ib, counter, "mlx5_0")])


@pytest.mark.parametrize(
    ("state", "code"),
    [("1: DOWN", "LINK_DOWN"), ("2: INIT", "LINK_INACTIVE"), ("3: ARMED", "LINK_INACTIVE"), ("DOWN", "LINK_DOWN")],
)
def test_a_port_that_is_not_active_has_failed(state: str, code: str) -> None:
    report = parse_efa_tree(tree(state))

    assert (report.verdict, found(report)) == (Verdict.FAILED, [(Family.efa, code, "rdmap0s0")])
    assert report.failed_components == ("rdmap0s0",)


def test_a_link_may_be_listed_with_its_state_alone() -> None:
    assert parse_efa("link rdmap79s0/1 state ACTIVE physical_state LINK_UP\n", 1).verdict is Verdict.OK
    assert parse_efa("link rdmap79s0/1 state DOWN physical_state DISABLED\n", 1).verdict is Verdict.FAILED


@pytest.mark.parametrize(
    "text",
    ["fi_getinfo: -61", golden("efa_fi_info_none_sick.txt"), golden("efa_fi_info_tcp_sick.txt")],
)
def test_a_node_without_an_efa_provider_has_failed(text: str) -> None:
    report = parse_efa(text)

    assert (report.verdict, found(report)) == (Verdict.FAILED, [(Family.efa, "NO_EFA_PROVIDER", None)])


@pytest.mark.parametrize("name", names("efa_*_healthy.txt", "ib_*_healthy.txt"))
def test_a_device_that_is_not_shown_is_missing(name: str) -> None:
    report = parse_efa(golden(name), devices(name) + 1)

    assert report.verdict is Verdict.FAILED
    assert [code for _, code, _ in found(report)] == ["DEVICE_MISSING"]


def test_a_list_says_when_nobody_has_said_how_long_it_should_be() -> None:
    report = parse_efa(golden("efa_sysfs_healthy.txt"))

    assert report.verdict is Verdict.OK
    assert "the expected number is not known" in report.reason
    assert "was not said" not in parse_efa(golden("efa_sysfs_healthy.txt"), devices("efa_sysfs_healthy.txt")).reason
    assert "was not said" not in parse_efa_tree(tree()).reason


def test_files_shown_one_after_the_other_are_read_too() -> None:
    rule = ":" * 14
    shown = "".join(f"{rule}\n{path}\n{rule}\n{text.strip()}\n" for path, text in tree(rx_drops=3).items())

    assert found(parse_efa(shown)) == [(Family.efa, "rx_drops", "rdmap0s0")]


@pytest.mark.parametrize("text", ["", "-1", "none"])
def test_a_counter_that_cannot_be_read_is_not_zero(text: str) -> None:
    broken = tree() | {f"{ROOT}/rdmap0s0/ports/1/hw_counters/rx_drops": text}

    assert parse_efa_tree(broken).verdict is Verdict.UNKNOWN


def test_a_device_that_shows_less_than_its_kin_is_not_health() -> None:
    partial = {path: text for path, text in tree().items() if "rdmap0s0" not in path or "rx_" not in path}

    assert parse_efa_tree(partial).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "text",
    ["", "rdma: command not found", "fi_getinfo: -12 (Cannot allocate memory)", "provider: efa", "link rdmap79s0/1 "],
)
def test_silence_is_not_health(text: str) -> None:
    assert parse_efa(text).verdict is Verdict.UNKNOWN


def test_an_empty_tree_is_not_health() -> None:
    assert parse_efa_tree({}, 4).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("name", names("efa_*", "ib_*"))
def test_a_recording_that_is_cut_off_is_not_health(name: str) -> None:
    for text in cut_off(name):
        assert parse_efa(text, devices(name)).verdict is not Verdict.OK, text[-60:]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser_or_pass_for_health(raw: bytes) -> None:
    assert parse_efa(raw.decode("utf-8", "replace")).verdict is not Verdict.OK


@given(st.lists(st.sampled_from(golden("efa_sysfs_sick.txt").splitlines() + golden("efa_rdma_sick.txt").splitlines())))
def test_no_mixture_of_lines_breaks_the_parser(lines: list[str]) -> None:
    assert parse_efa("\n".join(lines), 99).verdict is not Verdict.OK


@given(st.dictionaries(st.sampled_from(sorted(tree())), st.text(max_size=6)))
def test_no_part_of_a_tree_breaks_the_parser(part: dict[str, str]) -> None:
    assert parse_efa_tree(part).verdict in Verdict
