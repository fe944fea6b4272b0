"""`make audit`: whether advisories are known of anything that is pinned. Asks PyPI; changes nothing.

Ends with 0 where all were asked about and none has an advisory, 1 where one has, 2 where they could not be asked about.
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
    """The exit code and what to say about one lock file. `report`: pip-audit's JSON; None: it wrote none."""
    if report is None:
        return _NOT_ASKED, [f"{file}: not audited, pip-audit did not run: {trouble or 'it said nothing'}"]
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
        why = "the package index that is configured here passes no advisories on; run this where pypi.org is reachable"
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
    """Ask about every lock file; the gravest of the answers."""
    answers = [verdict(file, *_ask(file)) for file in (str(path.relative_to(REPOSITORY)) for path in LOCKS.values())]
    for _, lines in answers:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    codes = {code for code, _ in answers}
    return _FOUND if _FOUND in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main())
