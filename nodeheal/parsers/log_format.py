"""The forms of a kernel log."""

from enum import StrEnum


class LogFormat(StrEnum):
    """How the lines of a log begin.

    `auto`: every line by its own header, as far as the first line of the log allows. In a log that names its writers,
    or consists of records or of journal entries, a line of another form could be from anybody and is ignored.

    `any`: every line by any form that fits it, also inside the wrappers of other tools. For a person's own collection
    of lines: a program's line may pass for the kernel's.
    """

    auto = "auto"
    kmsg = "kmsg"
    dmesg = "dmesg"
    journald = "journald"
    syslog = "syslog"
    any = "any"
