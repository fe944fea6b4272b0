"""The command `nodeheal-agent`. It loads only the modules of the requested command, because memory is scarce on
a node.
"""

import sys
from collections.abc import Sequence

from nodeheal.agent.runtime.lazy_imports import load_when_used


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["watch"]:  # systemd's signal to stop
        load_when_used()
    from nodeheal.agent.commands.command_line import carry_out  # after that: it imports what is put off

    return carry_out(words)


if __name__ == "__main__":
    sys.exit(main())
