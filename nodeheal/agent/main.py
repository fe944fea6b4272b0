"""The command `nodeheal-agent`. What a command needs is loaded when it is known which: memory is scarce on a node."""

import sys
from collections.abc import Sequence

# As sysexits(3) has them: the small codes say what a check or an order came to.
EXIT_CONFIG = 78  # the same again, until somebody mends the configuration: systemd does not start it at once
EXIT_CANNOT_START = 71  # the machine keeps it from starting, such as a log that cannot be read: that may pass


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["watch"]:  # as systemd says it
        from nodeheal.agent.later import load_when_used

        load_when_used()
    return _carry_out(words)


def _carry_out(words: list[str]) -> int:
    import logging

    from nodeheal.agent.config import ConfigError
    from nodeheal.agent.log import log_to_stderr

    log_to_stderr()
    try:
        return _command(words)
    except (ConfigError, OSError) as error:
        logging.getLogger(__name__).error("nodeheal-agent cannot start", extra={"why": error})
        return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_CANNOT_START


def _command(words: list[str]) -> int:
    if words == ["watch"]:  # what understands any other command would stay in memory: 1 MiB for good
        from nodeheal.agent import watching

        return watching.watch_as_configured(None)
    from nodeheal.agent import commands

    return commands.carry_out(words)


if __name__ == "__main__":
    sys.exit(main())
