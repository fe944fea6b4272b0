"""What fi_pingpong prints. The columns are those of show_perf in libfabric's util/pingpong.c, versions 1.5 to 2; the
complaints are its PP_ERR and PP_PRINTERR. The numbers are ours, as of a node with one EFA device.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.fi_pingpong import PingpongExit, is_nobody_there, parse_pingpong, read_rows
from nodeheal.parsers.finding import ToolReport
from tests.support.goldens import golden, names

WELL, BADLY, HUNG = PingpongExit(0), PingpongExit(1), PingpongExit(-9, 60.0)


def connected(text: str, ended: PingpongExit = WELL, least: float = 0.0, errors: str = "") -> ToolReport:
    return parse_pingpong(text, errors, ended, serves=False, least_mb_per_s=least)


@pytest.mark.parametrize("name", names("fi_pingpong_*_healthy.txt"))
@pytest.mark.parametrize("serves", [True, False])
def test_either_side_of_a_healthy_way_says_so(name: str, serves: bool) -> None:
    report = parse_pingpong(golden(name), "", WELL, serves)

    assert report.verdict is Verdict.OK, report.reason


def test_the_largest_messages_give_the_speed_and_the_smallest_the_time() -> None:
    report = connected(golden("fi_pingpong_client_healthy.txt"))

    assert report.measured == {"fabric_mb_per_s": 2613.6, "fabric_us": 18.77}
    assert report.reason == "messages of 1m bytes came through at 2613.6 MB/s"


@pytest.mark.parametrize(("least", "verdict"), [(2613.6, Verdict.OK), (2613.7, Verdict.FAILED)])
def test_what_is_slower_than_was_asked_for_has_failed(least: float, verdict: Verdict) -> None:
    report = connected(golden("fi_pingpong_client_healthy.txt"), least=least)

    assert report.verdict is verdict
    assert report.measured
    assert report.failed_tests == (() if verdict is Verdict.OK else ("fabric_bandwidth",))


@pytest.mark.parametrize(
    ("name", "ended", "verdict", "said"),
    [
        ("fi_pingpong_lossy_sick.txt", WELL, Verdict.FAILED, "messages of 64k bytes were not all acknowledged"),
        ("fi_pingpong_broken_sick.txt", BADLY, Verdict.FAILED, "it broke off"),
        ("fi_pingpong_no_provider_sick.txt", BADLY, Verdict.FAILED, "offers no such provider"),
        ("fi_pingpong_port_taken.txt", BADLY, Verdict.UNKNOWN, "the port is taken on this node"),
        ("fi_pingpong_refused.txt", BADLY, Verdict.UNKNOWN, "does not serve"),
    ],
)
def test_each_end_has_its_reason(name: str, ended: PingpongExit, verdict: Verdict, said: str) -> None:
    for text, errors in ((golden(name), ""), ("", golden(name))):
        if read_rows(errors):
            continue
        report = connected(text, ended, errors=errors)
        assert (report.verdict, said in report.reason) == (verdict, True), report.reason


@pytest.mark.parametrize(
    ("text", "serves", "verdict", "said"),
    [
        ("", True, Verdict.UNKNOWN, "no node connected within 60 s"),
        ("", False, Verdict.FAILED, "nothing came through within 60 s"),
        (golden("fi_pingpong_small_healthy.txt"), True, Verdict.FAILED, "after messages of 4k bytes"),
    ],
)
def test_a_test_that_hangs_has_failed_but_one_that_nobody_came_to_has_not(
    text: str, serves: bool, verdict: Verdict, said: str
) -> None:
    report = parse_pingpong(text, "", HUNG, serves)

    assert (report.verdict, said in report.reason) == (verdict, True), report.reason
    assert report.failed_tests == (("timeout",) if verdict is Verdict.FAILED else ())


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("", WELL),
        ("bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n", WELL),
        ("fi_pingpong: invalid option -- 'I'\nUsage:\n", BADLY),
        ("", PingpongExit(-15)),
        ("Segmentation fault", PingpongExit(139)),
    ],
)
def test_what_proves_nothing_is_unknown(text: str, ended: PingpongExit) -> None:
    assert connected(text, ended).verdict is Verdict.UNKNOWN


def test_no_time_at_all_gives_no_number_and_passes_no_minimum() -> None:
    text = "64      10      =10      1.2k        0.00s       inf       0.00        inf\n"

    assert connected(text).measured == {"fabric_us": 0.0}
    assert connected(text, least=1).verdict is Verdict.FAILED


def test_only_a_side_that_found_nobody_is_to_try_again() -> None:
    assert is_nobody_there(golden("fi_pingpong_refused.txt"))
    assert is_nobody_there("[error] util/pingpong.c:391: getaddrinfo : Name or service not known")
    assert not is_nobody_there(golden("fi_pingpong_port_taken.txt"))
    assert not is_nobody_there(golden("fi_pingpong_broken_sick.txt"))


@given(
    st.text() | st.from_regex(r"[0-9.kmgb=+\-s inf]{0,200}"),
    st.text(),
    st.integers(-20, 255),
    st.floats(0, 600),
    st.booleans(),
)
def test_no_output_breaks_it(text: str, errors: str, code: int, hung: float, serves: bool) -> None:
    report = parse_pingpong(text, errors, PingpongExit(code, hung), serves, 100.0)

    assert report.reason
    if report.verdict is Verdict.OK:
        assert read_rows(text)


@pytest.mark.parametrize("name", names("fi_pingpong_client_healthy.txt"))
def test_an_output_that_is_cut_off_is_never_better_than_the_whole(name: str) -> None:
    text = golden(name)

    for end in range(0, len(text), 7):
        assert connected(text[:end], BADLY).verdict is not Verdict.OK
