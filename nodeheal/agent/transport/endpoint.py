"""The addresses of AWS's services."""

import os
from collections.abc import Mapping

# The SDKs call it by its product's name.
_SPELLED = {"monitoring": "CLOUDWATCH"}


def endpoint(service: str, region: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the service's URL: from the environment variables that the AWS SDKs use, else that of the Region's
    partition.
    """
    named = environment.get(f"AWS_ENDPOINT_URL_{_SPELLED.get(service, service.upper())}") or environment.get(
        "AWS_ENDPOINT_URL"
    )
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return named or f"https://{service}.{region}.{suffix}"
