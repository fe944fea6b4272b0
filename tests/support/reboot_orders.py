"""Orders that outlast a reboot."""

import json
from base64 import urlsafe_b64encode

ORDER = {"level": "2", "checks": "dcgm,efa", "first": "pcie", "request_id": "inc-1-2.0af", "expires_at": "1790000000"}


def packed(order: object = ORDER) -> str:
    return urlsafe_b64encode(json.dumps(order).encode()).decode().rstrip("=")
