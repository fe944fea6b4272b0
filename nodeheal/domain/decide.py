"""The decision core: from an incident's whole history to its next step, with the reason. Pure and total."""

from dataclasses import dataclass

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Ending, Outcome, Provider, Step, Verdict
from nodeheal.domain.incident import History
from nodeheal.domain.policy import Mode, RecoveryPolicy
from nodeheal.domain.progress import Diagnosis, Progress, gravest, read_progress

_IN_ACT_MODE = {
    Action.OBSERVE: "only record it",
    Action.RESTART_WORKLOAD: "restart the job",
    Action.RESET_GPU: "reboot the node, which covers a GPU reset",
    Action.REBOOT: "isolate the node, reboot it and rerun its diagnostics",
    Action.REPLACE: "isolate the node and replace it",
    Action.ISOLATE: "isolate the node and ask a human",
    Action.ESCALATE: "ask a human",
}


def decide(history: History, policy: RecoveryPolicy, provider: Provider) -> Decision:
    """The next step of the incident. `provider` is the broken node's. Never raises, whatever the history."""
    fault = gravest(history)
    seen = read_progress(history)
    say = _Spell(history, policy)
    if len(history.turns) >= policy.max_turns:
        return say.hand_over(f"{policy.max_turns} decisions did not end this incident; a human must look")
    if fault.action is Action.ESCALATE:
        return say.hand_over(f"{fault.title}: {fault.why}")
    if not any(event.verdict is Verdict.FAILED for event in history.events):
        said = history.incident.root.verdict
        return say.hand_over(f"{fault.title} is reported as {said}, not as FAILED: too little to act on")
    if fault.action is Action.OBSERVE:
        return say.close(Ending.OBSERVED_ONLY, f"{fault.title}: {fault.why}")
    if policy.pool(history.incident.pool).mode is Mode.observe:
        return _in_observe_mode(say, seen, fault)
    if fault.action is Action.RESTART_WORKLOAD:
        return _restart_only(say, seen, fault)
    return _heal(say, seen, fault, provider)


def _in_observe_mode(say: "_Spell", seen: Progress, fault: Diagnosis) -> Decision:
    pool = say.history.incident.pool
    if seen.isolation is not None or seen.restart is not None:
        return say.hand_over(f"{fault.title}: pool {pool} was set to observe during the recovery; nothing more is done")
    would = _IN_ACT_MODE[fault.action]
    return say.close(
        Ending.OBSERVED_ONLY, f"{fault.title}: pool {pool} is in observe mode; in act mode nodeheal would {would}"
    )


def _restart_only(say: "_Spell", seen: Progress, fault: Diagnosis) -> Decision:
    """The job's own fault: restart it where it is; the node is not touched."""
    if say.job_id is None:
        return say.close(Ending.OBSERVED_ONLY, f"{fault.title}: no job of ours runs here, nothing to restart")
    if seen.restart is None:
        return say.step(Step.RESTART_WORKLOAD, f"{fault.title}: {fault.why}", Action.RESTART_WORKLOAD)
    if seen.restart.outcome is Outcome.DONE:
        return say.close(Ending.RECOVERED, f"{fault.title}: {seen.restart.reason}")
    return say.hand_over(f"{fault.title}: the job could not be restarted: {seen.restart.reason}")


def _heal(say: "_Spell", seen: Progress, fault: Diagnosis, provider: Provider) -> Decision:
    """Isolate, then climb the ladder until something is proven, then bring the job back."""
    if seen.isolation is None:
        return say.step(Step.ISOLATE, f"{fault.title}: take the node out of service before anything else")
    if not seen.is_isolated:
        return say.hand_over(f"{fault.title}: the node was not isolated: {seen.isolation.reason}")
    if seen.awaits_proof:
        return _prove(say, seen)
    if seen.returned is not None and seen.contradiction:
        return say.hand_over(f"{fault.title}: {seen.contradiction}, when it was back in service already")
    if seen.proof is not None and seen.proof.outcome is Outcome.UNKNOWN:
        return say.hand_over(f"{fault.title}: the diagnostics prove nothing: {seen.proof.reason}")
    if not seen.is_proven:
        return _climb(say, seen, fault)
    if seen.replacement:
        return _after_swap(say, seen, fault, provider)
    return _after_repair(say, seen, fault)


def _prove(say: "_Spell", seen: Progress) -> Decision:
    if seen.replacement:
        return say.step(
            Step.DIAGNOSE, f"{seen.replacement} takes over only if it passes diagnostics", node_id=seen.replacement
        )
    return say.step(Step.DIAGNOSE, "it is back with a new boot id; prove the repair by rerunning the diagnostics")


def _climb(say: "_Spell", seen: Progress, fault: Diagnosis) -> Decision:
    """The next rung. A swap that brought a bad spare is not followed by another: a human looks at the pool."""
    rungs = say.policy.rungs(fault.action)
    left = rungs[len(seen.tried) :]
    if not seen.tried and left:
        return say.step(Step(left[0].value), f"{fault.title}: {fault.why}", left[0])
    if not left:
        tried = seen.told() or "isolated, as the catalog asks"
        return say.hand_over(f"{fault.title}: {tried}; nothing is left to try")
    name = {Action.REBOOT: "reboot", Action.REPLACE: "replacement"}[left[0]]
    return say.step(Step(left[0].value), f"{seen.told()}; next is a {name}", left[0])


def _after_repair(say: "_Spell", seen: Progress, fault: Diagnosis) -> Decision:
    if seen.returned is None:
        return say.step(Step.RETURN, "proven by a new boot id and passed diagnostics; back to service, on probation")
    if seen.returned.outcome is not Outcome.DONE:
        return say.hand_over(f"{fault.title}: healed, but not back in service: {seen.returned.reason}")
    return _bring_back(say, seen) or say.close(Ending.RECOVERED, _ended(say, seen, fault))


def _after_swap(say: "_Spell", seen: Progress, fault: Diagnosis, provider: Provider) -> Decision:
    unfinished = _bring_back(say, seen)
    if unfinished:
        return unfinished
    ended = _ended(say, seen, fault)
    if provider is Provider.hybrid:
        return say.hand_over(f"{ended}; the broken node stays out of service until a human repairs or retires it")
    return say.close(Ending.RECOVERED, ended)


def _bring_back(say: "_Spell", seen: Progress) -> Decision | None:
    """Restart the job once. None when there is nothing (more) to restart."""
    if say.job_id is None or (seen.restart and seen.restart.outcome is Outcome.DONE):
        return None
    if seen.restart:
        return say.hand_over(f"{seen.told()}, but the job could not be restarted: {seen.restart.reason}")
    where = f"with {seen.replacement} in place of the broken node" if seen.replacement else "on the same nodes"
    return say.step(
        Step.RESTART_WORKLOAD, f"restart the whole gang from its last checkpoint, {where}", Action.RESTART_WORKLOAD
    )


def _ended(say: "_Spell", seen: Progress, fault: Diagnosis) -> str:
    proof = seen.proof.reason if seen.proof else ""
    job = seen.restart.reason if seen.restart else "no job of ours was running here"
    return f"{fault.title}: {seen.told()}; {proof}; {job}"


@dataclass(frozen=True)
class _Spell:
    """Spells decisions: fills in what every one of them carries."""

    history: History
    policy: RecoveryPolicy

    @property
    def job_id(self) -> str | None:
        return self.history.incident.job_id

    def step(self, step: Step, reason: str, action: Action | None = None, node_id: str | None = None) -> Decision:
        return Decision(
            step=step,
            reason=reason,
            node_id=node_id or self.history.incident.node_id,
            action=action,
            job_id=self.job_id,
            events_seen=len(self.history.events),
            deadline_seconds=self._deadline(step),
            attempt=self.policy.limits[action] if action else None,
            diagnostics_level=self.policy.diagnostics_level if step is Step.DIAGNOSE else None,
        )

    def close(self, ending: Ending, reason: str) -> Decision:
        return self._last(Step.CLOSE, ending, reason)

    def hand_over(self, reason: str) -> Decision:
        return self._last(Step.ESCALATE, Ending.HANDED_TO_A_HUMAN, reason)

    def _last(self, step: Step, ending: Ending, reason: str) -> Decision:
        return Decision(
            step=step,
            ending=ending,
            reason=reason,
            node_id=self.history.incident.node_id,
            job_id=self.job_id,
            events_seen=len(self.history.events),
            deadline_seconds=self.policy.deadlines.quick_seconds,
        )

    def _deadline(self, step: Step) -> int:
        known = self.policy.deadlines
        return {
            Step.ISOLATE: known.isolate_seconds,
            Step.REBOOT: known.reboot_seconds,
            Step.DIAGNOSE: known.diagnose_seconds,
            Step.REPLACE: known.replace_seconds,
            Step.RESTART_WORKLOAD: known.restart_seconds,
        }.get(step, known.quick_seconds)
