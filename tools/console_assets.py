"""Copies the console's scripts from the packages that npm has checked by hash: `python -m tools.console_assets`."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from stacks.settings import REPOSITORY

STATIC = REPOSITORY / "nodeheal" / "console" / "static"
# Where each stands in its package. The wheel carries the copies: people who run the console have no npm.
ASSETS: Mapping[str, Path] = {
    "htmx.min.js": REPOSITORY / "node_modules" / "htmx.org" / "dist" / "htmx.min.js",
    "idiomorph-ext.min.js": REPOSITORY / "node_modules" / "idiomorph" / "dist" / "idiomorph-ext.min.js",
}


def main() -> int:
    """Copy them. Returns 0."""
    for name, source in ASSETS.items():
        shutil.copyfile(source, STATIC / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
