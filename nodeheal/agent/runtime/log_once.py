"""Logs each reason of a failure once: the first reason need not be the one to fix."""

TOLD = 8  # in one failure: a reason that differs each time must not fill the log


class LogOnce:
    """The reasons of one failure."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def is_news(self, reason: object) -> bool:
        """Whether this reason was not logged yet. It counts as logged from then on."""
        is_news = str(reason) not in self._told and len(self._told) < TOLD
        if is_news:
            self._told.add(str(reason))
        return is_news

    def forget(self) -> None:
        """Reset, because the failure is over."""
        self._told.clear()
