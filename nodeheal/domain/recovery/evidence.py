"""Where a node's evidence goes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Upload:
    """A permission to write one object: this key only, up to this size, until it expires."""

    key: str
    link: str  # s3://…
    console_url: str
    ticket: str
    max_bytes: int
