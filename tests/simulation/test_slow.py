"""What hangs and slow nodes cost: the arithmetic, by hand, and the page that it is written into."""

from pathlib import Path

import pytest

from bench.fleet import slow
from bench.fleet.runs import ROOT
from bench.fleet.slow import PUBLISHED, UNTIL_RESTART, in_proportion, lost, slow_minutes, stopped_minutes, tables
from bench.fleet.tables import BEGIN, END, into_page
from nodeheal.agent.runtime.trainings import STALL_SECONDS
from nodeheal.agent.transport.heartbeat_thread import ALERT_LOOK_SECONDS, REPORTED_AT_LOOK
from nodeheal.domain.policy.policy import RecoveryPolicy

PAGE = (ROOT / "docs" / "fleet.md").read_text("utf-8")
HANGS = {way: stopped_minutes(wait) for way, wait in UNTIL_RESTART.items()}


def test_a_case_a_day_of_a_tenth_of_a_day_takes_a_tenth_of_the_training() -> None:
    assert lost(0.001, 1_000, 144.0) == pytest.approx(1 / 11)  # 10 days of training, one of cases


def test_more_of_anything_loses_more_and_never_all() -> None:
    fewest = lost(0.001, 100, 60.0)

    assert 0 < fewest < min(lost(0.002, 100, 60.0), lost(0.001, 101, 60.0), lost(0.001, 100, 61.0))
    assert 0.99 < lost(1.0, 1_000_000, 60.0) < 1


def test_a_hang_costs_the_wait_ten_minutes_of_restart_and_half_an_interval() -> None:
    assert stopped_minutes(7.0) == 32.0


def test_a_slow_node_costs_the_share_of_speed_and_a_restart() -> None:
    assert slow_minutes(120.0, times=2.0) == 60.0 + 25.0
    assert slow_minutes(0.0, times=2.0) == 25.0


def test_a_swap_pays_for_a_slowness_that_lasts_longer_than_the_break_even() -> None:
    least = slow.break_even_minutes(2.0)

    assert least == 50.0
    assert slow_minutes(10.0, 2.0) == (10.0 + least) / 2  # as much as bearing it for ten minutes longer


def test_rates_are_those_that_one_calculates_by_hand() -> None:
    assert 1_000 * PUBLISHED["Llama 3"].hangs == pytest.approx(0.0633, abs=1e-4)
    assert 1_000 * PUBLISHED["ByteDance's two jobs"].hangs == pytest.approx(0.1522, abs=1e-4)
    of_rsc_1 = in_proportion(6.5)
    assert of_rsc_1.slow is not None
    assert of_rsc_1.diverged is not None
    assert (of_rsc_1.hangs, of_rsc_1.slow, of_rsc_1.diverged) == pytest.approx((0.936, 0.0751, 0.0252), abs=1e-4)


def test_a_rate_that_nobody_publishes_has_no_row() -> None:
    hangs, slow_nodes = tables().split("**Slow nodes")

    assert hangs.count("| Llama 3 |") == 4
    assert "Llama 3" not in slow_nodes


def test_a_hang_is_seen_after_its_limit_and_the_looks_until_it_is_reported() -> None:
    policy = RecoveryPolicy()
    assert policy.slow_jobs.hang_seconds == STALL_SECONDS

    seconds = policy.slow_jobs.hang_seconds + REPORTED_AT_LOOK * ALERT_LOOK_SECONDS

    assert seconds < slow.ALERTED * 60


def test_the_page_has_the_tables() -> None:
    assert PAGE.partition(slow.BEGIN)[2].partition(END)[0].strip() == tables()


@pytest.mark.parametrize(
    ("sentence", "numbers"),
    [
        ("the human who reads it take {:.0f}", (UNTIL_RESTART[slow.EMAIL],)),
        (
            "saves {:.0f} minutes of {:.0f} a hang",
            (HANGS["a time-out of 10 min"] - HANGS["nodeheal restarts"], HANGS["a time-out of 10 min"]),
        ),
        (
            "and {:.0f} of {:.0f} where the time-out is",
            (HANGS["a time-out of 30 min"] - HANGS["nodeheal restarts"], HANGS["a time-out of 30 min"]),
        ),
        (
            "costs {:.0f} minutes where somebody looks once a shift, {:.0f} with an email that names it, and {:.0f} if",
            tuple(cost for way, cost in slow.costs_of_slow_nodes().items() if way.startswith("+35 %")),
        ),
        (
            "as much as {:.0f} minutes of steps that take 15 % longer, or {:.0f} of",
            (slow.break_even_minutes(1.15), slow.break_even_minutes(1.35)),
        ),
        ("differ by a factor of {:.0f}", (in_proportion(0.0065).hangs / PUBLISHED["Llama 3"].hangs,)),
    ],
)
def test_a_number_that_the_page_says_is_that_of_the_arithmetic(sentence: str, numbers: tuple[float, ...]) -> None:
    assert sentence.format(*numbers) in " ".join(PAGE.split())


def test_the_same_numbers_give_the_same_plot(tmp_path: Path) -> None:
    slow.draw(tmp_path / "one.svg")
    slow.draw(tmp_path / "two.svg")

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_part_of_the_page_is_written_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "fleet.md"
    page.write_text(f"a\n{BEGIN}old{END}\nb\n{slow.BEGIN}old{END}\nc\n")

    into_page("new", page, slow.BEGIN)

    assert page.read_text() == f"a\n{BEGIN}old{END}\nb\n{slow.BEGIN}\n\nnew\n\n{END}\nc\n"


def test_a_page_without_the_marker_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "fleet.md"
    page.write_text("a page\n")

    with pytest.raises(ValueError, match="has no <!-- written by"):
        into_page("new", page, slow.BEGIN)

    assert page.read_text() == "a page\n"


def test_the_command_prints_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert slow.main([]) == 0

    assert capsys.readouterr().out == f"{tables()}\n"
