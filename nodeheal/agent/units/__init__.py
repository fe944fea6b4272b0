"""The units of systemd that the wheel brings along, and `nodeheal-agent units`, which puts them in their place."""

import argparse
from pathlib import Path

INSTALLED_IN = "/opt/nodeheal/bin"  # as the units say
NAMES = (
    *("nodeheal-agent.service", "nodeheal-retry.timer"),
    *("nodeheal-credentials.service", "nodeheal-credentials.path"),
    "nodeheal-after-boot.service",
)
UNIT_MODE = 0o644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """To where, and where the programs are."""
    parser.add_argument("--to", type=Path, required=True, help="such as /etc/systemd/system")
    parser.add_argument("--programs", default=INSTALLED_IN, help=f"where nodeheal-agent is; default: {INSTALLED_IN}")


def carry_out(arguments: argparse.Namespace) -> int:
    """Write them; the exit code."""
    write_units(arguments.to, arguments.programs)
    return 0


def write_units(folder: Path, programs: str = INSTALLED_IN) -> None:
    """Put the units where systemd looks, each as a whole; `programs` is the folder of the `nodeheal-agent` to run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        fresh = folder / f".{name}.new"
        fresh.write_text(text.replace(f"{INSTALLED_IN}/", f"{programs.rstrip('/')}/"), encoding="utf-8")
        fresh.chmod(UNIT_MODE)
        fresh.replace(folder / name)
