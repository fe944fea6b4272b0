"""The sandbox deploys what a user deploys. tests/golden/stage_difference.json lists every difference.

After a change that is meant: `python -m tests.infrastructure.test_stages`, and read the diff.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.infrastructure.synthesis import Template, synthesize

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "stage_difference.json"
_SAME = {"nodeheal": {"alert_emails": ["oncall@example.com"]}}
_ABSENT = "(absent)"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def differences(real: Any, sandbox: Any, where: str = "") -> Iterator[str]:
    """Every place where the two differ, with what stands there; digests as <digest>."""
    if isinstance(real, dict) and isinstance(sandbox, dict):
        for key in sorted({*real, *sandbox}):
            yield from differences(real.get(key, _ABSENT), sandbox.get(key, _ABSENT), f"{where}/{key}")
    elif real != sandbox:
        yield f"{where}: {_spelled(real)} -> {_spelled(sandbox)}"


def _spelled(value: Any) -> str:
    return _DIGEST.sub("<digest>", json.dumps(value))


def test_the_stages_differ_exactly_as_written_down(real: Template, sandbox: Template) -> None:
    assert list(differences(real.body, sandbox.body)) == json.loads(GOLDEN.read_text("utf-8"))


if __name__ == "__main__":
    found = list(differences(synthesize(_SAME).body, synthesize({**_SAME, "stage": "sandbox"}).body))
    GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
