"""Simulates Step Functions' tasks: it calls a function, writes an item, or publishes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from nodeheal.contract.vocabulary import IncidentState, JobState
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.asl import Ask
from nodeheal.simulation.bus import FunctionThrottled
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.executions import Executions, Running
from nodeheal.simulation.functions import ServiceContext, serve, stem_of
from nodeheal.simulation.hazards import AnswerLost, Died
from nodeheal.simulation.job_stores import SimJobs
from nodeheal.simulation.operators import Operators
from nodeheal.simulation.outages import AwsService, Outages
from nodeheal.simulation.stores import SimIncidents

Json = Any
BEGIN_SECONDS, ANSWER_SECONDS = 0.06, 0.15  # medians: until a function begins, until its answer arrives
FUNCTION_TIMEOUT = 30.0
INVOKE = "Invoke"  # the prefix of a throttle by the functions themselves
_THROTTLED = "Lambda.TooManyRequestsException"
Run = Callable[[str, Callable[[], object]], object]

REACHED = frozenset({JobState.COMPLETED, JobState.CANCELLED})  # ends of the failure states of a workflow


class Tasks:
    """Runs tasks, each after its start delay."""

    def __init__(
        self,
        agenda: Agenda,
        chance: Chance,
        executions: Executions,
        hands: ServiceContext,
        run: Run,
        outages: Outages,
        incidents: SimIncidents,
        jobs: SimJobs,
        operators: Operators,
    ) -> None:
        self._agenda, self._executions, self._run = agenda, executions, run
        self.hands = hands
        self._outages = outages
        self._incidents, self._jobs, self._people = incidents, jobs, operators
        self._lag = chance.of("function lag")
        self.when_one_fails: Callable[[], None] = lambda: None
        self.waited: Callable[[], float] = lambda: 0.0  # seconds that the last function has waited for an answer

    def carry_out(self, running: Running, ask: Ask) -> None:
        """Start a task."""
        doers = {
            "lambda:invoke": self._invoke,
            "lambda:invoke.waitForTaskToken": self._invoke,
            "dynamodb:updateItem": self._update,
            "sns:publish": self._publish,
        }
        do = doers[ask.resource.partition(":::")[2]]
        self._agenda.after(lognormal(self._lag, BEGIN_SECONDS, 0.5), lambda: do(running, ask))

    def _invoke(self, running: Running, ask: Ask) -> None:
        if running.ask is not ask or running.is_over:
            return
        stem = stem_of(ask.arguments["FunctionName"])
        try:
            answer = self._run(stem, lambda: serve(stem, ask.arguments["Payload"], self.hands))
        except AnswerLost:
            self.when_one_fails()
            self._executions.fail(running, ask, "Lambda.ServiceException")
        except Died:
            self.when_one_fails()
            self._agenda.after(FUNCTION_TIMEOUT, lambda: self._executions.fail(running, ask, "Lambda.Unknown"))
        except Exception as error:
            self.when_one_fails()
            name = _THROTTLED if isinstance(error, FunctionThrottled) else type(error).__name__
            fail = partial(self._executions.fail, running, ask, name, str(error))
            if waited := self.waited():
                self._agenda.after(waited, fail)
            else:
                fail()
        else:
            if not ask.resource.endswith("Token"):
                took = lognormal(self._lag, ANSWER_SECONDS, 0.4)
                self._agenda.after(took, lambda: self._executions.answer(running, ask, answer))

    def _update(self, running: Running, ask: Ask) -> None:
        """Write the items that state machines write themselves, without a service."""
        if self._outages.seconds_left(AwsService.table):
            self._executions.fail(running, ask, "DynamoDB.InternalServerErrorException")
            return
        kind, _, name = ask.arguments["Key"]["pk"]["S"].partition("#")
        state = ask.arguments["ExpressionAttributeValues"].get(":state", {}).get("S")
        if kind == "incident" and name in self._incidents.incidents:
            if state is not None:
                self._incidents.finish(replace(self._incidents.incidents[name], state=IncidentState(state)))
        elif kind == "job" and name in self._jobs.jobs and self._jobs.jobs[name].state not in REACHED:
            job = self._jobs.jobs[name]
            self._jobs.jobs[name] = replace(job, state=JobState(str(state)), version=job.version + 1)
        else:
            self._executions.fail(running, ask, "DynamoDB.ConditionalCheckFailedException")
            return
        self._executions.answer(running, ask, {})

    def _publish(self, running: Running, ask: Ask) -> None:
        given: Json = running.execution.given
        self._people.page(running.name, given.get("node_id"), given.get("job_id"))
        self._executions.answer(running, ask, {"MessageId": "m"})
