"""Which modules are looked through: use cases, what of the core brakes or says who may, and conditional writes."""

from pathlib import Path

from tests.mutants.sites import ROOT

# They compose what people read. A word too many or too few is a matter of their own tests, and no harm to a node.
WORDS_ONLY = ("approval_page", "compose", "read_aftermath", "replay", "validate_policy")
_CORE = (
    "faults.assessment",
    "faults.correlation",
    "fleet.liveness",
    "fleet.machine",
    "fleet.node",
    "fleet.pause",
    "fleet.pool",
    "fleet.unmanaged_tasks",
    "jobs.attribution",
    "jobs.gang",
    "jobs.job",
    "jobs.lost_work",
    "jobs.owner",
    "jobs.placement",
    "jobs.restarts",
    "jobs.shared_directory",
    "policy.policy",
    "policy.policy_models",
    "recovery.approval_links",
    "recovery.attempt_budget",
    "recovery.decide",
    "recovery.decision_builder",
    "recovery.decision_context",
    "recovery.effects",
    "recovery.ending",
    "recovery.guardrails",
    "recovery.incident",
    "recovery.job_move",
    "recovery.ladder",
    "recovery.progress",
    "recovery.recover",
    "recovery.situation",
)
# The node's own rule, and the conditional writes: their twins in DynamoDB are held to the same by tests/twins.
_ELSEWHERE = (
    "nodeheal.agent.commands.node_command",
    "nodeheal.adapters.memory.stores",
    "nodeheal.adapters.memory.world",
)


def modules() -> dict[str, Path]:
    """By their dotted names, and where each is."""
    services = sorted((ROOT / "nodeheal/services").rglob("[a-z]*.py"))
    acting = (
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in services
        if not path.stem.startswith(WORDS_ONLY)
    )
    verbs = sorted(path.stem for path in (ROOT / "nodeheal/operations").glob("[a-z]*.py"))
    names = [
        *acting,
        *(f"nodeheal.operations.{name}" for name in verbs),
        *(f"nodeheal.domain.{name}" for name in _CORE),
        *_ELSEWHERE,
    ]
    return {name: ROOT / f"{name.replace('.', '/')}.py" for name in names}
