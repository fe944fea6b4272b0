"""Leave to upload evidence, as the real one words it, for a bucket that is not there."""

from datetime import datetime

from nodeheal.domain.recovery.evidence import Upload

BUCKET = "evidence"


def sign_upload(key: str, max_bytes: int, expires_at: datetime) -> Upload:
    """SignUpload."""
    ticket = f"ticket-for-{key}-until-{expires_at.isoformat()}"
    return Upload(key, f"s3://{BUCKET}/{key}", f"https://console/{BUCKET}/{key}", ticket, max_bytes)
