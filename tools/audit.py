"""`make audit`: checks all pinned packages for advisories, with PyPI. It changes nothing.

Exit code 0: all were checked and none has an advisory; 1: one has; 2: they could not be checked.
"""

import json
import subprocess
import sys
from typing import Any

from stacks.settings import REPOSITORY
from tools.licences import LOCKS

# Run from outside the environment, which it must not change; it only reads the lock files.
PIP_AUDIT = "pip-audit==2.10.1"
_FOUND, _NOT_ASKED = 1, 2
Report = dict[str, Any]


def verdict(file: str, report: Report | None, trouble: str = "") -> tuple[int, list[str]]:
    """Return the exit code and the message for one lock file. `report`: pip-audit's JSON; None: it wrote none."""
    if report is None:
        return _NOT_ASKED, [f"{file}: not audited, pip-audit did not run: {trouble or 'it printed nothing'}"]
    found = [
        f"{file}: {each['name']} {each['version']}: {advisory['id']}, "
        f"fixed in {', '.join(advisory['fix_versions']) or 'nothing yet'}"
        for each in report["dependencies"]
        for advisory in each.get("vulns", ())
    ]
    if found:
        return _FOUND, found
    skipped = [each["name"] for each in report["dependencies"] if "skip_reason" in each]
    if skipped:
        asked = len(report["dependencies"])
        why = "the configured package index has no advisories; run this where pypi.org is reachable"
        return _NOT_ASKED, [f"{file}: {len(skipped)} of {asked} packages not audited: {why}"]
    return 0, [f"{file}: {len(report['dependencies'])} packages, no advisories"]


def _ask(path: str) -> tuple[Report | None, str]:
    command = ["uv", "tool", "run", "--quiet", PIP_AUDIT, "--require-hashes", "--disable-pip", "--format", "json"]
    done = subprocess.run(
        [*command, "--progress-spinner", "off", "--requirement", path],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return (json.loads(done.stdout) if done.stdout.startswith("{") else None), last


def main() -> int:
    """Check every lock file; returns the worst exit code."""
    answers = [verdict(file, *_ask(file)) for file in (str(path.relative_to(REPOSITORY)) for path in LOCKS.values())]
    for _, lines in answers:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    codes = {code for code, _ in answers}
    return _FOUND if _FOUND in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main())
