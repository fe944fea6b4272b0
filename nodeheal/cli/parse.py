"""`nodeheal parse`: what a tool's recorded output says, and what would be done about each fault in it."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Never

import typer

from nodeheal.api import file_views
from nodeheal.cli.say import say, say_json
from nodeheal.contract.vocabulary import Action, Verdict
from nodeheal.domain.faults import catalog, diagnosis
from nodeheal.parsers import dcgm_diag, dcgm_health, efa_tools, neuron_tools, nvidia_smi
from nodeheal.parsers.nvlinks import NvLinks
from nodeheal.parsers.tool_report import EXIT_CODES

if TYPE_CHECKING:
    from nodeheal.parsers.finding import Finding, ToolReport

app = typer.Typer(
    no_args_is_help=True,
    help="Read the recorded output of a tool: verdict, faults, actions.\n\n"
    "Exit codes are those of `nodeheal-agent check`: 0 OK, 1 DEGRADED, 2 FAILED (or FILE cannot be read), 3 UNKNOWN.",
)

BAD_INPUT = 2
# A sysfs file is at most a page; a tree of 16 devices has some 30,000 files.
_FILE_BYTES, _FILES_AT_MOST = 4096, 200_000
# Of a copied or mounted tree: the driver's links that lead out of it, and back in for ever.
_LINKS_OUT = ("subsystem", "device", "driver")

File = Annotated[str, typer.Argument(metavar="FILE", help="recorded output; - reads standard input")]
Tree = Annotated[str, typer.Argument(metavar="FILE", help="recorded output, or a copy of the tree; - reads stdin")]
Expect = Annotated[
    int, typer.Option("--expect", min=0, help="accelerators or devices that should be there; 0: unknown")
]

Links = Annotated[
    NvLinks, typer.Option(help="the node's NVLinks; only where they are up, what DCGM says of them is evidence")
]


@app.command("dcgm-diag")
def diagnostic(file: File, expect: Expect = 0, nvlinks: Links = NvLinks.UNKNOWN) -> None:
    """`dcgmi diag -j`, of DCGM 3 and 4."""
    _print(dcgm_diag.parse_diagnostic(_text(file), expect, nvlinks))


@app.command("dcgm-health")
def health(file: File, expect: Expect = 0, nvlinks: Links = NvLinks.UNKNOWN) -> None:
    """`dcgmi health -c -j`. It names only sick devices, so that there is nothing to compare --expect with."""
    _print(dcgm_health.parse_health(_text(file), nvlinks))


@app.command("nvidia-smi")
def smi(file: File, expect: Expect = 0) -> None:
    """`nvidia-smi`, plain, `-q`, `-q -x`, `-L` or `--query-gpu=… --format=csv`."""
    _print(nvidia_smi.parse_nvidia_smi(_text(file), expect))


@app.command("neuron")
def neuron(file: Tree, expect: Expect = 0) -> None:
    """The Neuron driver's sysfs tree, its listing by `grep -r .`, neuron-monitor or `neuron-ls --json-output`."""
    _print(
        neuron_tools.parse_neuron_tree(_tree(file), expect)
        if _is_directory(file)
        else neuron_tools.parse_neuron(_text(file), expect)
    )


@app.command("efa")
def efa(file: Tree, expect: Expect = 0) -> None:
    """`fi_info -p efa`, `rdma statistic show`, or /sys/class/infiniband as a tree or listed by `grep -r .`."""
    _print(
        efa_tools.parse_efa_tree(_tree(file), expect)
        if _is_directory(file)
        else efa_tools.parse_efa(_text(file), expect)
    )


def _print(report: "ToolReport") -> None:
    view = file_views.ToolOutput(
        verdict=report.verdict,
        failed_tests=report.failed_tests,
        undone_tests=report.undone_tests,
        failed_components=report.failed_components,
        findings=tuple(map(_explained, report.findings)),
        reason=report.reason,
    )
    say_json(view)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _explained(finding: "Finding") -> "file_views.ToolFault":
    row = catalog.find(finding.family, finding.code, finding.subcode)
    verdict = finding.verdict or (row.verdict if row else Verdict.UNKNOWN)
    doubt = (
        diagnosis.why_not_sure(row, verdict, None) if row else "the catalog does not know this fault; a human must look"
    )
    return file_views.ToolFault(
        family=finding.family,
        code=finding.code,
        subcode=finding.subcode,
        component=finding.component,
        verdict=verdict,
        action=row.action if row and not doubt else Action.ESCALATE,
        reason=row.why if row and not doubt else doubt,
        message=finding.message,
        pid=finding.pid,
    )


def _text(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        _refuse(f"{file}: {error.strerror}")
    return raw.decode("utf-8", "replace")


def _is_directory(file: str) -> bool:
    return file != "-" and Path(file).is_dir()


def _tree(directory: str) -> dict[str, str]:
    """The files of a tree by path. A file that cannot be read is there, and empty: its counter is not zero."""
    root = Path(directory).absolute()
    try:
        entries = sorted(root.iterdir())
    except OSError as error:
        _refuse(f"{directory}: {error.strerror}")
    tree: dict[str, str] = {}
    for path in _files(entries):
        if len(tree) == _FILES_AT_MOST:
            _refuse(f"{directory}: more than {_FILES_AT_MOST} files; name the device tree itself")
        tree[str(path)] = _beginning(path)
    return tree


def _files(entries: list[Path]) -> Iterator[Path]:
    """All files below. Links are followed at the top only: /sys/class is made of them, and below they go in circles."""
    for entry in entries:
        if entry.name in _LINKS_OUT:
            continue
        for place, _, names in os.walk(entry):
            yield from (Path(place, name) for name in sorted(names))
        if entry.is_file():
            yield entry


def _beginning(path: Path) -> str:
    try:
        # A named pipe or a device would block for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
        with path.open("rb") as file:
            return file.read(_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _refuse(why: str) -> Never:
    say(why, aside=True)
    raise typer.Exit(BAD_INPUT)
