"""Channels of a deployment."""

from typing import Any

SECRET = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:oncall-a1b2c3"
CHANNELS: dict[str, Any] = {
    "ops-chat": {"kind": "chat"},
    "oncall": {"kind": "pagerduty", "secret_arn": SECRET},
    "tracker": {"kind": "webhook", "url": "https://t.example/hook", "header": "X-Key", "secret_arn": SECRET},
}
