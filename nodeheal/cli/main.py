"""`nodeheal`: ask what would be done and why, before anything happens."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Never

import typer
from pydantic import ValidationError

from nodeheal import __version__
from nodeheal.cli import nodes
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Family, Provider, Verdict
from nodeheal.domain.catalog import find
from nodeheal.domain.decide import decide
from nodeheal.domain.incident import History, Incident
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.domain.progress import diagnose_event

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
policy_app = typer.Typer(no_args_is_help=True, help="The policy document.")
app.add_typer(policy_app, name="policy")
app.add_typer(nodes.app, name="nodes")

DEFAULT_POLICY = Path(__file__).resolve().parent.parent / "policies" / "default.json"
BAD_INPUT = 2


@app.command()
def version() -> None:
    """Print the version."""
    sys.stdout.write(f"{__version__}\n")


@app.command()
def explain(
    family: Annotated[Family, typer.Argument(help="who says it, e.g. xid", case_sensitive=False)],
    code: Annotated[str, typer.Argument(help="as the family spells it, e.g. 79")],
    policy: Annotated[Path, typer.Option(help="the policy document to decide by")] = DEFAULT_POLICY,
    pool: Annotated[str, typer.Option(help="the pool that the node is in")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """What would be done about a fault, and why."""
    event = _imagined(family, code, pool)
    document = _read_policy(policy)
    incident = Incident("inc-imagined", event.node_id, pool, event, event.observed_at, document.version, job_id="a-job")
    decision = decide(History(incident, (event,), ()), document, Provider.hybrid)
    fault, row = diagnose_event(event), find(family, code)
    rungs = [rung.value for rung in document.rungs(fault.action)]
    answer = {
        "fault": fault.title,
        "is_known": row is not None,
        "action": fault.action.value,
        "why": fault.why,
        "source": row.source if row else None,
        "pool": pool,
        "mode": document.pool(pool).mode.value,
        "ladder": rungs,
        "first_step": decision.step.value,
        "reason": decision.reason,
    }
    if as_json:
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
        return
    sys.stdout.write(
        f"{fault.title}\n"
        f"  asks for    {fault.action}{f', then {rungs[1]}' if len(rungs) > 1 else ''}\n"
        f"  why         {fault.why}\n"
        f"  in pool     {pool} ({answer['mode']} mode)\n"
        f"  first step  {decision.step}: {decision.reason}\n"
    )


@policy_app.command("check")
def policy_check(file: Annotated[Path, typer.Argument(help="a policy document, JSON")]) -> None:
    """Say whether a policy document is valid; if not, name the field."""
    document = _read_policy(file)
    sys.stdout.write(f"{file}: valid, version {document.version}\n")


def _read_policy(file: Path) -> RecoveryPolicy:
    try:
        return RecoveryPolicy.model_validate_json(file.read_text("utf-8"))
    except OSError as error:
        _refuse(f"{file}: {error.strerror}")
    except ValidationError as error:
        _refuse("\n".join(f"{file}: {'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors()))


def _refuse(why: str) -> Never:
    sys.stderr.write(f"{why}\n")
    raise typer.Exit(BAD_INPUT)


def _imagined(family: Family, code: str, pool: str) -> HealthEvent:
    return HealthEvent(
        schema_version=1,
        event_id="imagined",
        node_id="mi-imagined",
        cluster="imagined",
        pool=pool,
        provider=Provider.hybrid,
        instance_id="mi-imagined",
        boot_id="imagined",
        observed_at=datetime.now(UTC),
        source="explain",
        family=family,
        code=code,
        verdict=Verdict.FAILED,
        agent_version=__version__,
    )


def main() -> None:
    """The console script."""
    app()
