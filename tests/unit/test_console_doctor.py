"""The console's page of the doctor: it comes at once, follows one look, and shows the worst first."""

from collections.abc import Iterator

import pytest

from nodeheal.adapters.aws.finding import BAD, GOOD, UNKNOWN, WARNING, DoctorFinding
from nodeheal.api.client import Client
from nodeheal.console import doctor_page
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT, memory_ports
from tests.support.console import ServedConsole, deployment_of, served

HOSTILE = "<script>alert(1)</script>"
FINE = DoctorFinding("credentials", GOOD, "user/ada in us-east-1", "nothing, this is never shown")
FINDINGS = (
    FINE,
    DoctorFinding("alarms", WARNING, "one is on", "look at it"),
    DoctorFinding("quota", UNKNOWN, "GetServiceQuota: denied", "attach the policy"),
    DoctorFinding("table", BAD, f"it is gone {HOSTILE}\u202e", f"deploy again {HOSTILE}"),
)
ASKS_FOR_MORE = 'hx-get="/doctor/findings"'


class Account:
    """What a look finds. `looks`: how many have begun to ask."""

    def __init__(self) -> None:
        self.findings: tuple[DoctorFinding, ...] = FINDINGS
        self.looks = 0

    def look(self) -> Iterator[DoctorFinding]:
        self.looks += 1
        yield from self.findings


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def console(account: Account) -> Iterator[ServedConsole]:
    ports = memory_ports()
    client = Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))
    with served(client, deployment_of(client, look=account.look)) as console:
        console.enter()
        yield console


def test_the_page_comes_at_once_and_asks_for_the_findings(console: ServedConsole, account: Account) -> None:
    page = console.get("/doctor").text
    assert ASKS_FOR_MORE in page
    assert "<progress" in page
    assert account.looks == 0


def test_findings_are_shown_the_worst_first_with_what_to_do(console: ServedConsole) -> None:
    console.get("/doctor")
    text = console.get("/doctor/findings").text
    places = [text.index(shown) for shown in ("it is gone", "one is on", "GetServiceQuota", "user/ada in us-east-1")]
    assert places == sorted(places)
    assert "look at it" in text
    assert "this is never shown" not in text
    assert "All is well" not in text
    assert ASKS_FOR_MORE not in text


def test_an_account_without_a_fault_is_said_to_be_well(console: ServedConsole, account: Account) -> None:
    account.findings = (FINE,)
    console.get("/doctor")
    assert "All is well" in console.get("/doctor/findings").text


def test_a_long_look_shows_what_it_has_found_so_far(console: ServedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_page, "_TURN_SECONDS", 0.0)
    console.get("/doctor")
    for count in range(1, len(FINDINGS) + 1):
        text = console.get("/doctor/findings").text
        assert f"{count} finding" in text
        assert ASKS_FOR_MORE in text
        assert "All is well" not in text
    assert ASKS_FOR_MORE not in console.get("/doctor/findings").text


def test_a_page_that_is_loaded_again_looks_again_and_two_windows_follow_one_look(
    console: ServedConsole, account: Account
) -> None:
    console.get("/doctor")
    assert console.get("/doctor/findings").text == console.get("/doctor/findings").text
    assert account.looks == 1
    account.findings = (FINE,)
    console.get("/doctor")
    assert "All is well" in console.get("/doctor/findings").text
    assert account.looks == 2


def test_what_a_finding_says_is_text(console: ServedConsole) -> None:
    console.get("/doctor")
    text = console.get("/doctor/findings").text
    assert HOSTILE not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;" in text
