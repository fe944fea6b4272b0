"""Leave to upload evidence, as the real one words it, for a bucket that is not there."""

from datetime import datetime

from nodeheal.domain.recovery.evidence import Upload

BUCKET = "evidence"


def sign_upload(key: str, max_bytes: int, expires_at: datetime) -> Upload:
    """SignUpload."""
    ticket = f"{key} until {expires_at.isoformat()}"
    return Upload(key, f"s3://{BUCKET}/{key}", f"https://console/{BUCKET}/{key}", ticket, max_bytes)


def uploaded_key(ticket: str) -> str | None:
    """Where a node with this ticket puts its evidence; None where it has none."""
    key, found, _ = ticket.partition(" until ")
    return key if found else None
