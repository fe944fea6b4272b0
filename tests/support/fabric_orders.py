"""Orders of a fabric test."""

from typing import Any

from nodeheal.contract.fabric import FabricTestRequest
from nodeheal.contract.vocabulary import FabricRole


def order(**parameters: Any) -> FabricTestRequest:
    return FabricTestRequest(**{"role": FabricRole.SERVE, **parameters})
