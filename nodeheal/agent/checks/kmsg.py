"""Reads /dev/kmsg, the kernel's ring buffer: the fastest source of faults."""

import errno
import logging
import os
from collections.abc import Callable

RECORD_BYTES = 8192  # the kernel answers EINVAL to a buffer that is smaller than the record
RECORDS_A_TURN = 1000

logger = logging.getLogger(__name__)


class KmsgReader:
    """Returns the kernel's records once, in order. The ring buffer only holds the running boot."""

    def __init__(
        self,
        path: str,
        boot_id: str,
        cursor: dict[str, object] | None,
        read: Callable[[int, int], bytes] = os.read,
        rewind: Callable[[int], object] = lambda descriptor: os.lseek(descriptor, 0, os.SEEK_SET),
    ) -> None:
        """Open the device at the first unread record. Without a cursor (the first start ever), existing records are
        history.
        """
        self._read = read
        self._boot_id = boot_id
        self._last_sequence = self.history_until = -1  # the last record that existed before the first start ever
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if cursor is None:
            while self.read():  # the device gives the number of its last record only to a reader
                pass
            self.history_until, self._last_sequence = self._last_sequence, -1
            if self.history_until >= 0:
                rewind(self.descriptor)
        elif cursor.get("boot_id") == boot_id:
            # Where the position is not valid, the whole boot is read again.
            self._last_sequence, self.history_until = _number(cursor, "sequence"), _number(cursor, "history_until")

    def read(self) -> list[tuple[int, bytes]]:
        """Return the records since the last call, each with its sequence number. This runs for every record."""
        records = []
        for _ in range(RECORDS_A_TURN):
            try:
                raw = self._read(self.descriptor, RECORD_BYTES)
                if not raw:
                    break
                sequence = int(raw.split(b",", 2)[1])
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EINVAL):
                    raise
                continue  # overrun, or an oversized record: the next read returns the oldest that is left
            except (ValueError, IndexError):
                continue  # not a record
            if sequence > self._last_sequence:
                if sequence != self._last_sequence + 1:
                    self._notice_loss(sequence)
                self._last_sequence = sequence
                records.append((sequence, raw))
        return records

    def cursor(self) -> dict[str, object]:
        """Return the position for the next start."""
        return {"boot_id": self._boot_id, "sequence": self._last_sequence, "history_until": self.history_until}

    def close(self) -> None:
        """Close the device."""
        os.close(self.descriptor)

    def _notice_loss(self, sequence: int) -> None:
        lost = sequence - self._last_sequence - 1
        if self._last_sequence >= 0:
            logger.warning("kernel log records were overwritten before they were read", extra={"lost": lost})


def _number(cursor: dict[str, object], name: str) -> int:
    number = cursor.get(name)
    return number if isinstance(number, int) else -1
