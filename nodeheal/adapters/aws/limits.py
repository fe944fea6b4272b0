"""Enforces limits by conditional writes: attempts and disrupted nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from nodeheal.adapters.aws.items import Item, Table, fields_of, from_item, to_item, versioned
from nodeheal.contract import names
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.recovery import attempt_budget
from nodeheal.ports.clock import Clock

# Two incidents can update one counter at once; eight lost writes in a row are a bug or an outage.
_WRITE_TRIES = 8


class DynamoAttemptLedger:
    """Implements AttemptLedger, the retry counter. The domain computes the window; each write is conditional on the
    version read.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def reserve(self, scope: str, attempt_id: str, limit: AttemptLimit) -> tuple[bool, int]:
        for _ in range(_WRITE_TRIES):
            attempts, version = self._read(scope, limit)
            granted, counted = attempt_budget.reserve(attempts, attempt_id, limit, self._clock())
            if not granted or attempt_id in attempts or self._write(scope, limit, counted, version):
                return granted, len(counted)
        raise NotAccepted(f"the attempts of {scope} are being written by other calls; nothing was spent")

    def refund(self, scope: str, attempt_id: str, limit: AttemptLimit) -> None:
        for _ in range(_WRITE_TRIES):
            attempts, version = self._read(scope, limit)
            left = {known: at for known, at in attempts.items() if known != attempt_id}
            if left == attempts or self._write(scope, limit, left, version):
                return
        raise NotAccepted(f"the attempts of {scope} are being written by other calls; nothing was given back")

    def spent(self, scope: str, *limits: AttemptLimit) -> Mapping[Action, int]:
        counters = {item["sk"]["S"]: item for item in self._table.query(scope, names.ATTEMPTS_PREFIX)}
        known = {limit.group: _attempts(counters.get(names.attempts_sk(limit.group.value), {})) for limit in limits}
        return {
            limit.group: len(attempt_budget.in_window(known[limit.group], limit, self._clock())) for limit in limits
        }

    def _read(self, scope: str, limit: AttemptLimit) -> tuple[dict[str, datetime], int]:
        item = self._table.get(scope, names.attempts_sk(limit.group.value)) or {}
        return _attempts(item), int(item.get("version", {"N": "0"})["N"])

    def _write(self, scope: str, limit: AttemptLimit, attempts: Mapping[str, datetime], version: int) -> bool:
        values: dict[str, Any] = {
            "pk": scope,
            "sk": names.attempts_sk(limit.group.value),
            "attempts": {name: at.isoformat() for name, at in attempts.items()},
            "spent": len(attempts),
            "limit": limit.limit,
            "window_seconds": limit.window_seconds,
            "version": version + 1,
        }
        if version == 0:
            return self._table.put(to_item(values), "attribute_not_exists(pk)")
        return self._table.put(to_item(values), "version = :version", {":version": version})


def _attempts(item: Item) -> dict[str, datetime]:
    return {name: datetime.fromisoformat(at["S"]) for name, at in item.get("attempts", {"M": {}})["M"].items()}


class DynamoPoolStore:
    """Implements PoolStore: numbered slots, and the pool's own item. A slot is one item, so two claims never take the
    same one.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def claim(self, pool: str, node_id: str, slots: int) -> bool:
        held = self._slots(pool)
        if node_id in held.values():
            return True
        if len(held) >= slots:
            return False
        free = (f"{names.SLOT_PREFIX}{number:05d}" for number in range(slots))
        for slot in free:
            item = {"pk": names.pool_pk(pool), "sk": slot, "node_id": node_id}
            if slot not in held and self._table.put(to_item(item), "attribute_not_exists(pk)"):
                return True
        # The SDK repeats a write whose answer was lost, and the second write finds our own slot taken.
        return node_id in self._slots(pool).values()

    def release(self, pool: str, node_id: str) -> None:
        for slot, holder in self._slots(pool).items():
            if holder == node_id:
                self._table.delete(names.pool_pk(pool), slot, "node_id = :node", {":node": node_id})

    def holders(self, pool: str) -> Sequence[str]:
        return sorted(set(self._slots(pool).values()))

    def get(self, pool: str) -> Pool:
        item = self._table.get(names.pool_pk(pool), names.POOL_SK)
        return from_item(Pool, item) if item else Pool(pool)

    def save(self, pool: Pool) -> bool:
        condition, values = versioned(pool.version)
        keys = {"pk": names.pool_pk(pool.name), "sk": names.POOL_SK}
        item = to_item({**keys, **fields_of(replace(pool, version=pool.version + 1))})
        return self._table.put(item, condition, values)

    def _slots(self, pool: str) -> dict[str, str]:
        items = self._table.query(names.pool_pk(pool), names.SLOT_PREFIX)
        return {item["sk"]["S"]: item["node_id"]["S"] for item in items}
