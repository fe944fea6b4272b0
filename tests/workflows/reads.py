"""Which calls of ports only look. All others change something, or may be refused."""

READS = frozenset(
    (
        "answers",
        "ask",
        "describe",
        "find",
        "find_seats",
        "folded",
        "get",
        "get_run",
        "glimpses",
        "has_confirmed",
        "history",
        "holders",
        "in_line",
        "in_pool",
        "incident",
        "incidents",
        "launches",
        "look",
        "newest",
        "of",
        "on",
        "place",
        "pools",
        "runs",
        "see_ranks",
        "sightings",
        "spent",
        "was_sent",
    )
)
