"""The emulator MiniStack, as an AwsEmulator. No other code of the sandbox imports the package `ministack`.

Each change to it is small, gives its reason, and fails at the start if its target is gone. Written for the version that
requirements-dev.in pins; docs/fidelity.md lists the effects.
"""

import os
from pathlib import Path

from sandbox.aws_emulator import AwsEmulator

# MiniStack refuses calls above it, where AWS would queue them: a limit that is never reached.
LAMBDA_CONCURRENCY = 1_000


def emulator(directory: Path, port: int) -> AwsEmulator:
    """Return MiniStack, which serves this port and keeps its files here. It reads these settings at import."""
    os.environ.update(
        {
            "AUTH": "true",
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "MINISTACK_HOST": "127.0.0.1",
            "LAMBDA_ACCOUNT_CONCURRENCY": str(LAMBDA_CONCURRENCY),
            "S3_DATA_DIR": str(directory / "s3"),
            "STATE_DIR": str(directory / "state"),
            "LOG_LEVEL": "INFO",
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
        }
    )
    for variable in ("SERVICES", "PERSIST_STATE", "DOCKER_HOST"):
        os.environ.pop(variable, None)
    from sandbox.ministack_adapter.adapter import MiniStack

    return MiniStack(port, directory / "tmp" / "unpacked")
