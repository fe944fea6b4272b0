"""Error reports of firmware (APEI, GHES), line by line as the kernel prints them."""

import pytest

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_line import Messages
from tests.support.goldens import pcie, report

Found = tuple[str, str, str | None, str | None]


MEMORY = "  section_type: memory error\n  error_status: Storage error in DRAM memory (0x0000000000000400)"
ARM = "  section_type: ARM processor error\n  MIDR: 0x00000000410fd4f0"
UNKNOWN = "  section type: unknown, 81212a96-09ed-4996-9471-8d729c8e69ed\n  section length: 0x100"


def read(lines: list[str]) -> list[Found]:
    messages = Messages()
    return [_told(finding) for line in lines if (finding := messages.finding(line)) is not None]


def _told(finding: Finding) -> Found:
    return (finding.family.value, finding.code, finding.subcode, finding.component)


@pytest.mark.parametrize(("severity", "happened"), [("recoverable", "nonfatal"), ("fatal", "fatal")])
def test_a_pcie_error_that_firmware_reports_is_judged_as_the_kernels_own(severity: str, happened: str) -> None:
    assert read(report(severity, pcie("0000:c9:02.0"))) == [
        (Family.pcie_aer.value, "unplaced", happened, "0000:c9:02.0")
    ]


def test_the_severity_of_the_section_counts_for_a_pcie_error() -> None:
    lines = report("recoverable", pcie("0000:04:00.0"), section_severity="fatal")

    assert read(lines) == [("pcie_aer", "unplaced", "fatal", "0000:04:00.0")]


@pytest.mark.parametrize(("severity", "code"), [("recoverable", "uncorrected"), ("fatal", "fatal")])
@pytest.mark.parametrize("section", [MEMORY, ARM, UNKNOWN], ids=["memory", "processor", "unknown"])
def test_an_error_of_memory_or_processor_is_a_machine_fault_as_before(section: str, severity: str, code: str) -> None:
    assert read(report(severity, section)) == [("mce", code, None, None)]


@pytest.mark.parametrize("severity", ["corrected", "info", "panic"])
@pytest.mark.parametrize("section", [MEMORY, pcie("0000:c9:02.0")], ids=["memory", "pcie"])
def test_what_was_corrected_or_only_said_is_no_fault(section: str, severity: str) -> None:
    assert read(report(severity, section)) == []


def test_every_section_of_a_report_is_read_by_itself() -> None:
    lines = report("fatal", pcie("0000:80:03.0"), MEMORY, pcie("0000:80:04.0"))

    assert [found[0] for found in read(lines)] == ["pcie_aer", "mce", "pcie_aer"]


def test_two_reports_that_are_printed_at_the_same_time_are_told_apart() -> None:
    first, second = report("recoverable", pcie("0000:c9:02.0")), report("corrected", pcie("0000:5e:00.0"), number=2)
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]

    assert read(mixed) == [("pcie_aer", "unplaced", "nonfatal", "0000:c9:02.0")]


def test_a_later_boot_that_counts_its_reports_from_one_again_starts_afresh() -> None:
    lines = [*report("fatal", pcie("0000:c9:02.0"))[:4], *report("corrected", pcie("0000:5e:00.0"))]

    assert read(lines) == []


def test_many_reports_that_never_end_are_forgotten() -> None:
    messages = Messages()
    for number in range(5_000):
        for line in report("recoverable", number=number):
            messages.finding(line)

    def goes_on(number: int) -> list[Finding]:
        rest = report("recoverable", pcie("0000:c9:02.0"), number=number)[3:]
        return [finding for line in rest if (finding := messages.finding(line)) is not None]

    assert len(goes_on(4_999)) == 1
    assert goes_on(3) == []


@pytest.mark.parametrize("text", ["", "event severity: ", "section_type: PCIe error", "device_id: 0000:c9:02.0"])
def test_a_line_without_its_beginning_is_no_fault(text: str) -> None:
    assert read([f"{{1}}[Hardware Error]:   {text}", "{x}[Hardware Error]: event severity: fatal", "{1}"]) == []


def test_other_messages_are_read_as_ever() -> None:
    assert read(["NVRM: Xid (PCI:0000:b9:00): 79, pid=1", "{not a report}"]) == [("xid", "79", None, "0000:b9:00.0")]
