"""Runs one command line of `nodeheal-agent`: what fails is one line of the log, and an exit code."""

import io
import logging
import os
import select
import signal
import sys

from nodeheal.agent.runtime.config import ConfigError
from nodeheal.agent.runtime.log import log_to_stderr

# As in sysexits(3): the small codes are results of checks and commands.
EXIT_CONFIG = 78  # retries fail until the configuration is corrected: systemd does not restart it at once
EXIT_BROKEN = 70  # an internal error: it must not look like a verdict
EXIT_CANNOT_START = 71  # the machine prevents the start, for example by an unreadable log: that may pass

EXIT_UNREAD = 128 + signal.SIGPIPE  # the shell's code for a process whose reader, such as `head`, has closed the pipe

logger = logging.getLogger(__name__)


def carry_out(words: list[str]) -> int:
    """Run one command, and say why where it cannot run; returns its exit code."""
    _make_streams_usable()
    log_to_stderr()
    try:
        return _command(words)
    except (ConfigError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _is_unread():
            return EXIT_UNREAD
        logger.error("nodeheal-agent cannot start", extra={"why": error})
        return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_CANNOT_START
    except Exception as error:
        package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if package and package != "nodeheal":
            why = f"the package {package} is not installed; install the agent again, from its wheelhouse"
            logger.error("nodeheal-agent cannot start", extra={"why": why})
        else:
            logger.exception("nodeheal-agent is broken")
        return EXIT_BROKEN
    finally:
        if _is_unread():
            _say_it_to_nobody()


def _make_streams_usable() -> None:
    """Open /dev/null for a standard stream that the caller has closed: otherwise the next opened file would take its
    number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            setattr(sys, name, os.fdopen(nowhere, "w" if number else "r", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name that the stream cannot encode must not cost the verdict.
        sys.stdout.reconfigure(errors="backslashreplace")


def _is_unread() -> bool:
    """Whether the output goes into a pipe that nobody reads any more."""
    news = select.poll()
    try:
        news.register(sys.stdout.fileno(), 0)  # poll reports a broken pipe without being asked for it
        return any(events & select.POLLERR for _, events in news.poll(0))
    except (OSError, ValueError, AttributeError):  # it is not a file, or closed
        return False


def _say_it_to_nobody() -> None:
    """Discard the remaining output. Python would report an error and exit with its own code, though the work is
    done.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _command(words: list[str]) -> int:
    if words == ["watch"]:  # the full argument parser would stay in memory: 1 MiB
        from nodeheal.agent.runtime import watching

        return watching.watch_as_configured(None)
    from nodeheal.agent.commands import table

    return table.carry_out(words)
