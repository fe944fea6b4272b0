"""The systemd units in the wheel, and `nodeheal-agent units`, which installs them."""

import argparse
from pathlib import Path

INSTALLED_IN = "/opt/nodeheal/bin"  # the path in the units
NAMES = (
    *("nodeheal-agent.service", "nodeheal-retry.timer"),
    *("nodeheal-credentials.service", "nodeheal-credentials.path"),
    "nodeheal-after-boot.service",
)
UNIT_MODE = 0o644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the target folder, and the folder of the programs."""
    parser.add_argument("--to", type=Path, required=True, help="such as /etc/systemd/system")
    parser.add_argument(
        "--programs", default=INSTALLED_IN, help=f"the folder of nodeheal-agent; default: {INSTALLED_IN}"
    )


def carry_out(arguments: argparse.Namespace) -> int:
    """Write the units; returns the exit code."""
    write_units(arguments.to, arguments.programs)
    return 0


def write_units(folder: Path, programs: str = INSTALLED_IN) -> None:
    """Write each unit atomically into systemd's folder; `programs` is the folder of the `nodeheal-agent` to run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        fresh = folder / f".{name}.new"
        fresh.write_text(text.replace(f"{INSTALLED_IN}/", f"{programs.rstrip('/')}/"), encoding="utf-8")
        fresh.chmod(UNIT_MODE)
        fresh.replace(folder / name)
