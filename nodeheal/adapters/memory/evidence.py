"""Signs uploads of evidence in the real form, for a bucket that does not exist."""

from datetime import datetime

from nodeheal.domain.recovery.evidence import Upload

BUCKET = "evidence"


def sign_upload(key: str, max_bytes: int, expires_at: datetime) -> Upload:
    """Implements SignUpload."""
    ticket = f"{key} until {expires_at.isoformat()}"
    return Upload(key, f"s3://{BUCKET}/{key}", f"https://console/{BUCKET}/{key}", ticket, max_bytes)


def uploaded_key(ticket: str) -> str | None:
    """Return where a node with this ticket puts its evidence; None where it has none."""
    key, separator, _ = ticket.partition(" until ")
    return key if separator else None
