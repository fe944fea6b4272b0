"""Stores pauses in DynamoDB: the one partition that persons write by themselves."""

from datetime import timedelta

from nodeheal.adapters.aws.items import Table, fields_of, plain, to_item
from nodeheal.contract import names
from nodeheal.domain.fleet.pause import Pause, Pauses, pause_of

# A pause that is over stays so long, for people who ask who set or ended it, and why.
KEPT_AFTER = timedelta(days=7)


class DynamoPauseStore:
    """Implements PauseStore."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def read(self) -> Pauses:
        return Pauses({item["sk"]["S"]: pause_of(plain(item)) for item in self._table.query(names.PAUSES_PK)})

    def save(self, key: str, pause: Pause) -> None:
        expires = {names.TTL_ATTRIBUTE: int((pause.until + KEPT_AFTER).timestamp())}
        self._table.put(to_item({"pk": names.PAUSES_PK, "sk": key, **fields_of(pause), **expires}))
