"""The page of `nodeheal doctor`: what is wrong with the account and its deployment, the worst first."""

import time
from collections.abc import Callable, Iterator
from threading import Lock

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodeheal.adapters.aws.finding import BAD, GOOD, UNKNOWN, WARNING, DoctorFinding
from nodeheal.api.views import AccountFinding

_WORST_FIRST = (BAD, WARNING, UNKNOWN, GOOD)
_TURN_SECONDS = 1.0  # after so long the page shows the findings so far, and asks for more


class _Look:
    """One look at the account. Every window of the session follows it."""

    def __init__(self, findings: Iterator[DoctorFinding]) -> None:
        self._going, self._lock = findings, Lock()
        self.rows: list[AccountFinding] = []

    def go_on(self) -> bool:
        """Look for a moment, and return whether the look has ended. Nothing is asked while no window asks for more."""
        ends_at = time.monotonic() + _TURN_SECONDS
        with self._lock:
            for finding in self._going:
                self.rows.append(AccountFinding.model_validate(finding, from_attributes=True))
                if time.monotonic() >= ends_at:
                    return False
        return True


class DoctorPage:
    """The handlers of the doctor's routes. `find_look`: what begins a look for who asks, None: they look elsewhere;
    `show`: answers with a page.
    """

    def __init__(
        self, find_look: Callable[[], Callable[[], Iterator[DoctorFinding]] | None], show: Callable[..., Response]
    ) -> None:
        self._find_look, self._show = find_look, show
        self._look: _Look | None = None

    def routes(self) -> list[Route]:
        """Return every route."""
        return [Route("/doctor", self._begin), Route("/doctor/findings", self._go_on)]

    def _begin(self, request: Request) -> Response:
        """The page at once; it asks for the findings of a new look."""
        self._look = self._new_look()
        return self._show(request, "doctor.html")

    def _go_on(self, request: Request) -> Response:
        """The findings so far."""
        look = self._look = self._look or self._new_look()
        is_over = look.go_on()
        rows = sorted(look.rows, key=lambda row: _WORST_FIRST.index(row.state))
        counts = {state: sum(row.state == state for row in rows) for state in _WORST_FIRST}
        return self._show(request, "doctor_findings.html", rows=rows, counts=counts, is_over=is_over)

    def _new_look(self) -> _Look:
        begin = self._find_look()
        if begin is None:
            raise HTTPException(404, "The doctor looks from a person's own machine: `nodeheal doctor`.")
        return _Look(begin())
