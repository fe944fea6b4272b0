"""Formats log lines: a sentence, then its fields. systemd adds the time."""

import logging

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class SentenceFormatter(logging.Formatter):
    """Formats as `ERROR the bus is out of reach why='…' failures=3`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, whatever the fields contain."""
        fields = [f"{key}={str(value)!r}" for key, value in vars(record).items() if key not in _OWN]
        line = " ".join((record.levelname, record.getMessage(), *fields))
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_to_stderr() -> None:
    """Send every log line of this process to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(SentenceFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
