"""The command `nodeheal-agent`. What a command needs is loaded when it is known which: memory is scarce on a node."""

import io
import os
import select
import signal
import sys
from collections.abc import Sequence

# As sysexits(3) has them: the small codes say what a check or a command came to.
EXIT_CONFIG = 78  # the same again, until somebody mends the configuration: systemd does not start it at once
EXIT_BROKEN = 70  # a fault of ours: it must not look like a verdict
EXIT_CANNOT_START = 71  # the machine keeps it from starting, such as a log that cannot be read: that may pass

EXIT_UNREAD = 128 + signal.SIGPIPE  # as shells say of one whose reader has gone, such as `head`, which has enough


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["watch"]:  # as systemd says it
        from nodeheal.agent.lazy_imports import load_when_used

        load_when_used()
    return _carry_out(words)


def _carry_out(words: list[str]) -> int:
    import logging

    from nodeheal.agent.config import ConfigError
    from nodeheal.agent.log import log_to_stderr

    _make_streams_usable()
    log_to_stderr()
    try:
        return _command(words)
    except (ConfigError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _is_unread():
            return EXIT_UNREAD
        logging.getLogger(__name__).error("nodeheal-agent cannot start", extra={"why": error})
        return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_CANNOT_START
    except Exception as error:
        package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if package and package != "nodeheal":
            why = f"the package {package} is not installed; install the agent again, from its wheelhouse"
            logging.getLogger(__name__).error("nodeheal-agent cannot start", extra={"why": why})
        else:
            logging.getLogger(__name__).exception("nodeheal-agent is broken")
        return EXIT_BROKEN
    finally:
        if _is_unread():
            _say_it_to_nobody()


def _make_streams_usable() -> None:
    """A standard stream that whoever started us has closed leads nowhere: else the next file to be opened is it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(nowhere, "w" if number else "r", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that it has no characters for costs no verdict


def _is_unread() -> bool:
    """Whether what is said here goes into a pipe that nobody reads any more."""
    news = select.poll()
    try:
        news.register(sys.stdout.fileno(), 0)  # that a pipe has broken is told without being asked for
        return any(told & select.POLLERR for _, told in news.poll(0))
    except (OSError, ValueError, AttributeError):  # it is no file, or closed
        return False


def _say_it_to_nobody() -> None:
    """What is left to be said. Python would complain of it, and end with a code of its own: what was done is done."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _command(words: list[str]) -> int:
    if words == ["watch"]:  # what understands any other command would stay in memory: 1 MiB for good
        from nodeheal.agent import watching

        return watching.watch_as_configured(None)
    from nodeheal.agent import commands

    return commands.carry_out(words)


if __name__ == "__main__":
    sys.exit(main())
