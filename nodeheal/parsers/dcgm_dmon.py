"""Parses the rows of `dcgmi dmon -e FIELD,… `, of DCGM 3 and 4. Pure."""

import re
from collections.abc import Iterator, Sequence

_ROW = re.compile(r"\s*GPU +(?P<gpu>\d{1,4}) +(?P<values>\S.*)", re.ASCII)
_COUNT = re.compile(r"\d{1,18}", re.ASCII)


def read_rows(text: str, fields: Sequence[int]) -> Iterator[tuple[int, dict[int, int]]]:
    """Yield each row of a GPU: its number, and the counters by field. A blank one (`N/A`) is left out; headers, and
    rows with another number of columns, are no rows.
    """
    for line in text.splitlines():
        row = _ROW.fullmatch(line)
        values = row["values"].split() if row else []
        if row is not None and len(values) == len(fields):
            counts = zip(fields, values, strict=True)
            yield int(row["gpu"]), {field: int(value) for field, value in counts if _COUNT.fullmatch(value)}
