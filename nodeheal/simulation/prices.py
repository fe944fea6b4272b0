"""Computes AWS's charges from prices.csv: us-east-1, without any free tier."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

PRICES_AS_OF = "2026-07"

# A step is a few calls of 5 to 20 ms each; a cold start is about a second and is billed. This is the mean of a run.
RUN_SECONDS = 0.4
LOG_BYTES_A_RUN = 2_048


@cache
def price_list() -> Mapping[str, float]:
    """Return dollars for each unit."""
    with files(__package__).joinpath("prices.csv").open(encoding="utf-8") as file:
        return {row["item"]: float(row["usd"]) for row in csv.DictReader(file)}


def cost(counted: Mapping[str, float]) -> dict[str, float]:
    """Return dollars by item. Raises KeyError for an item without a price."""
    prices = price_list()
    return {item: amount * prices[item] for item, amount in counted.items()}
