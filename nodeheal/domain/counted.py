"""Numbers in sentences."""


def counted(number: int, one: str, many: str = "") -> str:
    """`1 incident`, `2 incidents`; `many`, where it is more than an s: `counted(n, "node waits", "nodes wait")`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"
