"""Simulates people: they answer approvals, handle pages, repair hardware, and make a round once a day. All of
it late.
"""

from collections.abc import Callable, Iterator
from random import Random

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Escalation, IncidentState, NodeState, Phase, Provider
from nodeheal.domain.errors import NodehealError, NotAccepted
from nodeheal.domain.fleet.node import OUT_OF_SERVICE
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.ports import Ports
from nodeheal.services.operators.answer_approval import answer_approval, open_question
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool, reset_breaker
from nodeheal.services.operators.release_node import release_node
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.setting import DAY, OperatorTimes
from nodeheal.simulation.trace import Trace

SAYS_YES, SAYS_NO = 0.85, 0.1  # the others give no answer
PAUSES_A_DAY = 0.05
PAUSE_SECONDS = 3_600
AGAIN_SECONDS = 3_600.0
RECONCILED_AGAIN_SECONDS = 300.0


class Operators:
    """The people behind the emails. They use the functions of the command line."""

    def __init__(
        self,
        pool: str,
        operators: OperatorTimes,
        agenda: Agenda,
        chance: Chance,
        trace: Trace,
        ports: Ports,
        fleet: Fleet,
    ) -> None:
        self._pool, self._people, self._agenda, self._trace = pool, operators, agenda, trace
        self._ports, self._fleet = ports, fleet
        self._stream = chance.of("people")
        self._at_it: set[str] = set()
        self.broken_off: set[str] = set()  # nodes whose release was interrupted
        self.out_of_service: Callable[[], list[str]] = list
        self.jobs_down: Callable[[], Iterator[str]] = lambda: iter(())
        self.restart_job: Callable[[str], None] = lambda job_id: None
        self.on_over: Callable[[str], None] = lambda incident_id: None
        self.reconcile: Callable[[], bool] = lambda: True  # whether the records are whole again
        self.pages = 0
        self.emails = 0
        agenda.after(operators.round_seconds, lambda: self._when_whole(self._round))

    def read(self, notification: Notification) -> None:
        """Receive an email."""
        self.emails += 1
        if notification.incident_id is not None and notification.ending is not None:
            self.on_over(notification.incident_id)
        if notification.phase is Phase.ASKS and notification.node_id is not None:
            name = notification.node_id
            self._later(self._people.answer_seconds, lambda: self._answer(name))
        if notification.escalation is Escalation.RECORDS_RESTORED:
            self.pages += 1
            self._trace.tell("page", notification.pool, notification.subject)
            self._agenda.after(self._people.page_seconds, self._reconcile)
        elif notification.severity == "PAGE":
            self.pages += 1
            self._trace.tell("page", notification.node_id or notification.pool, notification.subject)
            self._later(self._people.page_seconds, lambda: self._attend(notification.node_id, notification.job_id))

    def page(self, about: str, node_id: str | None, job_id: str | None = None) -> None:
        """Receive a page that did not come from `notify`."""
        self.pages += 1
        self._trace.tell("page", about, "a workflow broke")
        self.on_over(about)
        self._later(self._people.page_seconds, lambda: self._attend(node_id, job_id))

    def _later(self, median: float, act: Callable[[], None]) -> None:
        self._agenda.after(lognormal(self._stream, median, self._people.spread), lambda: self._when_whole(act))

    def _when_whole(self, act: Callable[[], None]) -> None:
        """Act once the records are whole: before that, commands say so and do nothing."""
        if self._ports.epoch.read().has_gone_back:
            self._agenda.after(AGAIN_SECONDS, lambda: self._when_whole(act))
            return
        act()

    def _reconcile(self) -> None:
        """Set restored records right, as often as the command says that something is left."""
        is_over = self.reconcile()
        self._trace.tell("reconciles", self._pool, "whole" if is_over else "not yet")
        if not is_over:
            self._agenda.after(RECONCILED_AGAIN_SECONDS, self._reconcile)

    def _answer(self, node_id: str) -> None:
        node, drawn = self._ports.nodes.get(node_id), self._stream.random()
        if node is None or node.open_incident is None or drawn > SAYS_YES + SAYS_NO:
            return
        answer = Answer.approve if drawn < SAYS_YES else Answer.refuse
        try:
            question = open_question(node.open_incident, self._ports)
            answer_approval(question, answer, "ada", "", self._ports)
            self._trace.tell("answers", node_id, answer.value)
        except (ValueError, NodehealError):
            return

    def _attend(self, node_id: str | None, job_id: str | None) -> None:
        if self._ports.pools.get(self._pool).is_tripped:
            self._trace.tell("resets breaker", self._pool)
            reset_breaker(self._pool, "looked at it", self._ports, "ada")
        down = dict.fromkeys([*([job_id] if job_id is not None else []), *self.jobs_down()])
        if down:  # whatever the page was about: a person who sees a failed job submits it again
            self._give_up_dark_nodes()
        for name in down:
            self.restart_job(name)
        if node_id is not None:
            self._see_to(node_id)

    def _give_up_dark_nodes(self) -> None:
        """Retire dark nodes, as in the runbook (job-handed-over.md): by nodeheal's records, a dark node may still run a
        rank. A human sees that it is off, and retires it; after its repair it registers again.
        """
        for dark in [machine.node_id for machine in self._fleet.silent() if machine.provider is Provider.hybrid]:
            node = self._ports.nodes.get(dark)
            if node is None or node.state is not NodeState.QUARANTINED:
                continue
            try:
                release_node(dark, "ada: it is dead, and switched off", self._ports, retire=True)
            except (ValueError, NotAccepted) as refusal:
                self._trace.tell("cannot retire", dark, str(refusal))
                continue
            self._trace.tell("retires", dark)
            self._fleet.terminate(dark)
            self._later(self._people.repair_seconds, lambda dark=dark: self._register(dark))  # type: ignore[misc]

    def _register(self, gone: str) -> None:
        record = self._fleet.replacement_node(gone)
        self._ports.nodes.save(record)
        self._trace.tell("registers anew", record.node_id, gone)

    def _see_to(self, node_id: str) -> None:
        """Repair the node, and release it."""
        node, known = self._ports.nodes.get(node_id), self._fleet.nodes.get(node_id)
        if node is None or known is None or node_id in self._at_it:
            return
        if node.state in OUT_OF_SERVICE or not known.is_up or node_id in self.broken_off:
            is_broken = known.fault is not None or not known.is_up
            self._at_it.add(node_id)
            self._later(
                self._people.repair_seconds if is_broken else self._people.page_seconds, lambda: self._finish(node_id)
            )
        else:
            self._close(node.open_incident)

    def _finish(self, node_id: str) -> None:
        self._at_it.discard(node_id)
        node, known = self._ports.nodes.get(node_id), self._fleet.nodes.get(node_id)
        if node is None or known is None:
            return
        self._fleet.repair(known)
        if node.state not in OUT_OF_SERVICE and node_id not in self.broken_off:
            self._close(node.open_incident)
            return
        is_repeated = node_id in self.broken_off
        self.broken_off.discard(node_id)
        try:
            release_node(node_id, "ada: repaired", self._ports)
            self._trace.tell("releases", node_id)
        except (ValueError, NotAccepted) as refusal:
            if isinstance(refusal, NotAccepted) or (is_repeated and node.drained_by_us):
                self.broken_off.add(node_id)  # completed parts remain: they run the command again
            self._trace.tell("cannot release", node_id, str(refusal))
            self._agenda.after(AGAIN_SECONDS, lambda: self._see_to(node_id))

    def _close(self, incident_id: str | None) -> None:
        if incident_id is None:
            return
        incident = self._ports.incidents.incident(incident_id)
        if incident.state is IncidentState.ESCALATED:
            try:
                close_incident(incident_id, "ada: seen", self._ports)
            except (ValueError, NotAccepted) as refusal:
                self._trace.tell("cannot close", incident_id, str(refusal))

    def _round(self) -> None:
        """Handle what is open without a page, or after a lost one."""
        for node_id in self.out_of_service():
            node = self._ports.nodes.get(node_id)
            incident = self._ports.incidents.incident(node.open_incident) if node and node.open_incident else None
            if incident is None or incident.state in (IncidentState.ESCALATED, IncidentState.CLOSED):
                self._see_to(node_id)
        for dark in [machine.node_id for machine in self._fleet.silent()]:
            node = self._ports.nodes.get(dark)
            if node is not None and node.open_incident is None:
                self._see_to(dark)
        for job_id in list(self.jobs_down()):
            self.restart_job(job_id)
        if self._ports.pools.get(self._pool).is_tripped:
            self._attend(None, None)
        if self._stream.random() < PAUSES_A_DAY * self._people.round_seconds / DAY:
            self.pause(self._stream)
        self._agenda.after(self._people.round_seconds, lambda: self._when_whole(self._round))

    def pause(self, stream: Random) -> None:
        """Pause the pool or a node for a while."""
        why = f"ada: works there since {self._agenda.clock().timestamp()}"
        if stream.random() < 0.5:
            pause_pool(self._pool, PAUSE_SECONDS, why, self._ports)
            self._trace.tell("pauses", self._pool)
            return
        name = stream.choice(list(self._fleet.nodes))
        if self._ports.nodes.get(name) is not None:
            pause_node(name, PAUSE_SECONDS, why, self._ports)
            self._trace.tell("pauses", name)
