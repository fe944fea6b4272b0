"""Signs uploads of evidence: an S3 POST policy, signed with the function's own permission to write the bucket.

A node needs no permission in S3. The policy fixes the key, the maximum size and the expiry; S3 checks all three.
"""

import base64
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from nodeheal.adapters.aws.console import console_host
from nodeheal.contract import names
from nodeheal.domain.recovery.evidence import Upload
from nodeheal.ports.clock import Clock


class S3UploadSigner:
    """Implements SignUpload."""

    def __init__(self, client: Callable[[], Any], bucket: str, clock: Clock) -> None:
        self._client = client
        self._bucket = bucket
        self._clock = clock

    def __call__(self, key: str, max_bytes: int, expires_at: datetime) -> Upload:
        seconds = max(1, int((expires_at - self._clock()).total_seconds()))
        kind = {"Content-Type": names.EVIDENCE_TYPE}
        post = self._client().generate_presigned_post(
            Bucket=self._bucket,
            Key=key,
            Fields=kind,
            Conditions=[["content-length-range", 1, max_bytes], kind],
            ExpiresIn=seconds,
        )
        ticket = base64.urlsafe_b64encode(json.dumps(post, separators=(",", ":")).encode()).decode().rstrip("=")
        return Upload(key, f"s3://{self._bucket}/{key}", self._console_url(key), ticket, max_bytes)

    def _console_url(self, key: str) -> str:
        meta = self._client().meta
        where = f"region={meta.region_name}&prefix={quote(key, safe='')}"
        return f"https://{console_host(meta.partition, meta.region_name)}/s3/object/{self._bucket}?{where}"
