"""placeholder"""


def replay() -> None:
    """placeholder"""
