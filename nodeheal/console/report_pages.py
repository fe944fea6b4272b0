"""The pages of what many incidents add up to: a report with its plot, and the record of one part for its vendor."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodeheal.api import incident_reports
from nodeheal.api.client import Client
from nodeheal.api.incident_views import DayRow, IncidentReport, PartView
from nodeheal.api.job_views import JobView
from nodeheal.api.pages import Page
from nodeheal.console.asked import SINCE, chosen, pools_of
from nodeheal.console.rendering import attachment

_OF_A_PART = "90d"
JOBS = 20  # whose times are told: each is some reads
_HEIGHT, _FOOT, _WIDTH = 120.0, 22.0, 960.0
_COLOURS = "<style>text{font:11px sans-serif;fill:#596168}.good{fill:#17693a}.bad{fill:#b3261e}</style>"


class ReportPages:
    """The handlers of the report's routes. `find_client`: of who asks; `show`: answers with a page."""

    def __init__(self, find_client: Callable[[], Client], show: Callable[..., Response]) -> None:
        self._find_client, self._show = find_client, show

    @property
    def _client(self) -> Client:
        return self._find_client()

    def routes(self) -> list[Route]:
        """Return every route."""
        return [
            Route("/report", self._report),
            Route("/report/export", self._export),
            Route("/report/days.svg", self._export_days),
            Route("/part", self._part),
            Route("/part/export", self._export_part),
        ]

    def _report(self, request: Request) -> Response:
        report = self._asked(request)
        return self._show(
            request,
            "report.html",
            report=report,
            days=days_plot(report.tally.days),
            jobs=self._jobs([report.pool] if report.pool else []),
            sinces=list(SINCE),
            pools=list(self._client.ports.fleet_index.pools()),
        )

    def _jobs(self, pools: Sequence[str]) -> list[JobView]:
        """The first jobs of the list, with where their time went."""
        rows = self._client.jobs(pools, page=Page(JOBS)).rows
        return [view for row in rows if (view := self._client.job(row.job)).advice.account.wall_seconds]

    def _export(self, request: Request) -> Response:
        """The report as a file, with every incident."""
        report = self._asked(request)
        return attachment(report.model_dump_json(indent=2), "application/json", f"nodeheal-{report.since}.json")

    def _export_days(self, request: Request) -> Response:
        """The plot as a file, with its own colours."""
        report = self._asked(request)
        return attachment(days_plot(report.tally.days, _COLOURS), "image/svg+xml", f"nodeheal-{report.since}.svg")

    def _asked(self, request: Request) -> IncidentReport:
        since, pools = chosen(request.query_params.get("since", "7d"), SINCE, "since"), pools_of(request)
        pool = pools[0] if pools else None
        return incident_reports.report(self._incidents(SINCE[since], pools), self._client.ports, since, pool)

    def _incidents(self, since: timedelta, pools: Sequence[str] = ()) -> list[str]:
        return [row.incident for row in self._client.incidents(self._client.ports.clock() - since, pools).rows]

    def _part(self, request: Request) -> Response:
        return self._show(request, "part.html", part=self._named(request))

    def _export_part(self, request: Request) -> Response:
        """The record of a part as a file, for its vendor."""
        return attachment(self._named(request).model_dump_json(indent=2), "application/json", "part.json")

    def _named(self, request: Request) -> PartView:
        """The part whose serial the address has: a serial may hold what a path would not keep."""
        serial = request.query_params.get("serial", "")
        return incident_reports.part(serial, self._incidents(SINCE[_OF_A_PART]), self._client.ports, _OF_A_PART)


def days_plot(days: Sequence[DayRow], style: str = "") -> Markup:
    """Return a bar for each day: its faults, and which of them recovered. Empty: there is no day."""
    if not days:
        return Markup()
    most = max(max(day.incidents for day in days), 1)
    step = _WIDTH / max(len(days), 7)
    bars = Markup()
    for place, day in enumerate(days):
        x, wide = place * step + step * 0.15, min(step * 0.7, 40)
        whole = _HEIGHT * day.incidents / most
        good = _HEIGHT * day.recovered / most
        label = f"{day.day:%m-%d}" if place % max(1, len(days) // 10) == 0 else ""
        bars += Markup(
            "<g><title>{}: {} of {} recovered, {} accelerator-hours lost</title>"
            '<rect class="bad" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"></rect>'
            '<rect class="good" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"></rect>'
            '<text x="{:.1f}" y="{:.1f}">{}</text></g>'
        ).format(
            *(day.day, day.recovered, day.incidents, day.lost_accelerator_hours),
            *(x, _HEIGHT - whole, wide, whole - good),
            *(x, _HEIGHT - good, wide, good),
            *(x, _HEIGHT + _FOOT - 6, label),
        )
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" class="days" viewBox="0 -14 {:.0f} {:.0f}" role="img" '
        'aria-label="Faults by day, at most {}">{}<text x="0" y="-3">{}</text>{}</svg>'
    ).format(_WIDTH, _HEIGHT + _FOOT + 14, most, Markup(style), most, bars)
