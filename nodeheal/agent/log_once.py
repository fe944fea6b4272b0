"""Says of a thing that does not work each reason once: the first one need not be the one that has to be mended."""

TOLD = 8  # in one trouble: a reason that never reads the same must not fill the log


class LogOnce:
    """Of one trouble."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def is_news(self, reason: object) -> bool:
        """Whether this one is to be told now. It has been, from then on."""
        is_news = str(reason) not in self._told and len(self._told) < TOLD
        if is_news:
            self._told.add(str(reason))
        return is_news

    def forget(self) -> None:
        """The trouble is over."""
        self._told.clear()
