"""What an adapter makes of an event of another system: drafts of health events.

A draft names the machine as its cloud does. `take_signal` finds the node, its pool and the boot.
"""

from dataclasses import dataclass
from datetime import datetime

from nodeheal.contract.vocabulary import Family, Verdict


@dataclass(frozen=True)
class Draft:
    """What a source says about one machine.

    `key` is the same for every delivery of the same fact. A draft that `is_advisory` opens no incident by itself. A
    draft with a `version` is history where a newer one of its `topic` came before it. A topic may end in `#` and the
    name of what its versions count for: only the newest of these is remembered.
    """

    instance_id: str
    source: str
    family: Family
    code: str
    key: str
    observed_at: datetime
    subcode: str | None = None
    verdict: Verdict | None = None  # None: as the catalog has it
    evidence: str = ""
    is_advisory: bool = False
    takes_node_away: bool = False  # the machine is gone, or about to be: no fault where nodeheal wants it so
    topic: str = ""
    version: int | None = None
