"""What a recovery costs and how many steps it takes. A change that makes recoveries dearer fails here first."""

import pytest

from nodeheal.contract.vocabulary import Step
from nodeheal.simulation.prices import PRICES_AS_OF
from nodeheal.simulation.report import READS_A_RUN, WRITES_A_RUN
from stacks.workflows import PARENT
from tests.support.recover_node import CLOSE, TRANSITIONS_AT_MOST, recover
from tests.support.steps import decision, result
from tests.support.walker import Error, Sequence
from tests.workflows.bill import BEGIN, COST_PAGE, END, Bill, bill, counted_part
from tests.workflows.meter import (
    billed_transitions,
    loops,
    states_of,
    waits_by_the_clock,
    write_units,
)

DOLLARS_AT_MOST = 0.000_86
THROTTLED = Error("Lambda.TooManyRequestsException")


@pytest.fixture(scope="module")
def reboot() -> Bill:
    return bill("rebooted, proven, job resumed")


def test_a_recovery_by_reboot_takes_few_billed_transitions(reboot: Bill) -> None:
    assert reboot.end == "Recovered"
    assert reboot.counted["transition"] <= TRANSITIONS_AT_MOST


def test_a_recovery_by_reboot_costs_about_a_tenth_of_a_cent(reboot: Bill) -> None:
    assert reboot.dollars <= DOLLARS_AT_MOST
    assert all(reboot.counted.values()), "something is used of everything in the price list"


def test_an_incident_that_is_only_observed_costs_a_fraction(reboot: Bill) -> None:
    assert bill("observed only").dollars < reboot.dollars / 4


def test_the_simulator_reckons_with_the_units_that_are_counted_here(reboot: Bill) -> None:
    runs = reboot.counted["function_run"]

    assert pytest.approx(reboot.counted["table_write"] / runs, rel=0.005) == WRITES_A_RUN
    assert pytest.approx(reboot.counted["table_read"] / runs, rel=0.005) == READS_A_RUN


def test_a_retry_is_billed_as_one_more_transition() -> None:
    done = result(Step.DIAGNOSE)

    at_once = recover([decision(Step.DIAGNOSE), CLOSE])
    at_the_third = recover([decision(Step.DIAGNOSE), CLOSE], Run_diagnostics=Sequence([THROTTLED, THROTTLED, done]))

    billed = [billed_transitions(walked, states_of(walked)) for walked in (at_once, at_the_third)]
    assert billed[1] == billed[0] + 2


@pytest.mark.parametrize("stem", [PARENT])
def test_no_state_passes_time_by_the_clock(stem: str) -> None:
    assert waits_by_the_clock(stem) == []


def test_the_parent_comes_back_only_for_the_next_step() -> None:
    assert loops(PARENT)
    assert not loops(PARENT, without={"Which step?", "Find checkpoint"})


@pytest.mark.parametrize(
    ("before", "after", "units"),
    [
        ({}, {"pk": 1}, 1),
        ({}, {"pk": 1_500}, 2),
        ({"pk": 1}, {}, 1),
        ({}, {"pk": 1, "gsi_pk": 1, "gsi_sk": 1}, 2),
        ({"pk": 1, "gsi_pk": 1, "gsi_sk": 1}, {"pk": 2, "gsi_pk": 1, "gsi_sk": 1}, 2),
        ({"pk": 1, "gsi_pk": 1, "gsi_sk": 1}, {"pk": 1, "gsi_pk": 1, "gsi_sk": 2}, 3),
        ({"pk": 1, "gsi_pk": 1, "gsi_sk": 1}, {"pk": 1, "gsi_pk": 1, "gsi_sk": 1}, 1),
    ],
)
def test_a_write_is_billed_by_the_kilobyte_and_again_for_what_it_changes_in_the_index(
    before: dict[str, int], after: dict[str, int], units: int
) -> None:
    """Lengths stand for texts of that length."""

    def item(lengths: dict[str, int]) -> dict[str, dict[str, str]]:
        return {name: {"S": "x" * length} for name, length in lengths.items()}

    assert write_units(item(before), item(after)) == units


def test_the_cost_page_says_what_is_counted_and_when_the_prices_were_read() -> None:
    page = COST_PAGE.read_text("utf-8")

    assert page.split(BEGIN)[1].split(END)[0].strip() == counted_part(), "run `python -m tests.workflows.bill`"
    assert PRICES_AS_OF in page
