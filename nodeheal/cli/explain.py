"""`nodeheal explain`: what would be done about a fault, and why."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import file_views, imagined
from nodeheal.cli import connect
from nodeheal.cli.main import apply_context
from nodeheal.cli.say import DEFAULT_POLICY, complaints, read_policy, refuse, say, say_json
from nodeheal.contract import health_event, names
from nodeheal.contract.vocabulary import Action, Family, NextStepCondition
from nodeheal.domain.faults import assessment, catalog, diagnosis
from nodeheal.domain.verbs import ESCALATION_STEPS

if TYPE_CHECKING:
    from nodeheal.domain.policy.policy import RecoveryPolicy

_NUMBERED = (Family.xid, Family.sxid)
_NEXT = {
    NextStepCondition.unproven: "when the one before did not help",
    NextStepCondition.repeated: "when the same accelerator shows it again and again",
    NextStepCondition.other_job: "when the same accelerator shows it under another job",
    NextStepCondition.job_end: "when the job has ended",
}

_POLICIES = {
    "built-in": "the built-in policy, not your deployment's (see --deployed)",
    "deployed": "your deployment's policy",
}


def _fault(words: list[str]) -> tuple[Family, str]:
    """The family and the code of one or two words. A number alone is an XID, a name alone what the catalog has."""
    family = words[0].casefold()
    if len(words) == 2 and family in [*Family]:
        return Family(family), words[1]
    if family in [*Family]:
        raise typer.BadParameter(f"{family} takes one code: nodeheal explain {family} CODE")
    if len(words) > 1:
        raise typer.BadParameter(f"{words[0]!r} is not one of {', '.join(Family)}")
    code, slash, subcode = words[0].partition("/")
    if code.isdigit():
        return Family.xid, words[0]
    known = {row.family: row.code for row in catalog.catalog().values() if row.code.casefold() == code.casefold()}
    if len(known) > 1:
        commands = " or ".join(f"`nodeheal explain {each} {words[0]}`" for each in known)
        raise typer.BadParameter(f"several families have it; did you mean {commands}?")
    if not known:
        raise typer.BadParameter(f"{words[0]!r} is not one of {', '.join(Family)}, and no fault of the catalog")
    ((only, spelled),) = known.items()
    return only, f"{spelled}{slash}{subcode}"


def explain(
    ctx: typer.Context,
    fault: Annotated[
        list[str],
        typer.Argument(
            metavar="[FAMILY] CODE",
            help="what reports it (xid, dcgm, neuron, efa, …), and its code: xid 79, or 145/RLW_RXPIPE",
            autocompletion=lambda: [*Family],
        ),
    ],
    product: Annotated[str | None, typer.Option(help="the accelerator, e.g. H100")] = None,
    pool: Annotated[str, typer.Option(help="the pool that the node is in")] = "default",
    after: Annotated[str, typer.Option(help="tried without success: reset_gpu,reboot,stop_start,replace")] = "",
    policy: Annotated[
        Path | None, typer.Option(help="the policy document to decide by; else the one that comes with nodeheal")
    ] = None,
    deployed: Annotated[bool, typer.Option("--deployed", help="decide by the policy in force")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="write JSON, for programs")] = False,
) -> None:
    """Say what would be done about a fault, and why."""
    from pydantic import ValidationError

    if deployed and policy:
        refuse("--policy and --deployed: give one of them")
    family, code = _fault(fault)
    document = _in_force(ctx) if deployed else read_policy(policy or DEFAULT_POLICY)
    code, _, subcode = code.partition("/")
    if family in _NUMBERED:
        if not code.isascii() or not code.isdigit():
            refuse(f"{family} codes are numbers; {code!r} is not one")
        code = str(int(code))
    decided_by = "deployed" if deployed else str(policy) if policy else "built-in"
    try:
        answer = _answer(family, code, subcode or None, product, pool, _actions(after), document, decided_by)
    except ValidationError as error:
        refuse(*complaints("nodeheal explain", error, health_event.HealthEvent))
    if deployed and pool != "default":
        say(*_notes(pool, document), aside=as_json)
    if as_json:
        say_json(answer)
        return
    for label, text in _lines(answer):
        say(f"  {label:<13}{text}" if label else text)


def _in_force(ctx: typer.Context) -> "RecoveryPolicy":
    """The deployed policy. Without this option no account is asked, so that no context was applied yet."""
    apply_context(ctx.find_root().params["context"])
    with connect.clearly():
        return connect.policy()


def _notes(pool: str, policy: "RecoveryPolicy") -> list[str]:
    """A note on a pool that the policy names and no node is in. One that is in neither ends the command."""
    notes = connect.notes_of_pools([pool])
    if notes and pool not in policy.pools:
        with connect.clearly():
            connect.known_pool(pool, connect.ports(os.environ.get(names.ENV_TABLE, names.TABLE)))
    return notes


def _actions(after: str) -> list[Action]:
    tried = {action.value.lower(): action for action in ESCALATION_STEPS}
    words = [word.strip().lower() for word in after.split(",") if word.strip()]
    unknown = [word for word in words if word not in tried]
    if unknown:
        refuse(f"--after: {unknown[0]!r} is not one of {', '.join(tried)}")
    return [tried[word] for word in words]


def _answer(
    family: Family,
    code: str,
    subcode: str | None,
    product: str | None,
    pool: str,
    after: list[Action],
    policy: "RecoveryPolicy",
    decided_by: str,
) -> "file_views.FaultExplanation":
    event, row = imagined.event_of(family, code, subcode, pool, product), catalog.find(family, code, subcode)
    fault = (
        next(iter(diagnosis.faults_of([event], policy, pool)), None)
        or assessment.assess_faults(imagined.history_of(event, policy), policy).fault
    )
    next_step, in_act_mode = imagined.decided(event, policy, after), imagined.decided(event, policy.acting(), after)
    return file_views.FaultExplanation(
        fault=fault.title,
        is_known=row is not None,
        family=family,
        code=code,
        subcode=subcode,
        meaning=row.meaning if row else None,
        scope=fault.scope,
        verdict=event.verdict,
        action=fault.ladder[0],
        ladder=fault.ladder,
        next_rung=fault.next_rung,
        why=fault.why,
        keep=row.keep if row else (),
        products=row.products if row else (),
        drivers=row.drivers if row else "",
        source=row.source if row else None,
        pool=pool,
        pool_is_named=pool in policy.pools,
        mode=policy.pool(pool).mode_of(fault.ladder[0]).value,
        policy_version=policy.version,
        after=tuple(after),
        next_step=next_step.step,
        reason=next_step.reason,
        in_act_mode=file_views.NextStep(next_step=in_act_mode.step, reason=in_act_mode.reason),
        policy=decided_by,
    )


def _perhaps(answer: "file_views.FaultExplanation") -> str:
    """What may have been meant."""
    from difflib import get_close_matches

    known = [row.code for row in catalog.catalog().values() if row.family is answer.family]
    alike = get_close_matches(answer.code, dict.fromkeys(known), n=3, cutoff=0.6)
    alike += [code for code in dict.fromkeys(known) if code.endswith(f"_{answer.code}") and code not in alike]
    return f"; did you mean {', '.join(alike[:3])}?" if alike and answer.family not in _NUMBERED else ""


def _lines(answer: "file_views.FaultExplanation") -> list[tuple[str, str]]:
    ladder = ", then ".join(answer.ladder)
    when = f" ({_NEXT[answer.next_rung]})" if len(answer.ladder) > 1 else ""
    lines = [
        ("", answer.fault),
        ("meaning", answer.meaning or f"nobody has described this fault{_perhaps(answer)}"),
        ("asks for", f"{ladder}{when}"),
        ("why", answer.why),
        ("known for", ", ".join(answer.products)),
        ("keep", ", ".join(answer.keep)),
        ("source", answer.source or ""),
        ("decided by", _POLICIES.get(answer.policy, answer.policy)),
        ("in pool", _pool_of(answer)),
        ("after", ", ".join(answer.after)),
        *_next(answer),
    ]
    return [(label, text) for label, text in lines if text]


def _pool_of(answer: "file_views.FaultExplanation") -> str:
    is_default = answer.pool_is_named or answer.pool == "default"
    asks = "" if answer.policy == "deployed" else " (whether there is such a pool, --deployed asks)"
    how = "" if is_default else f"; not named in the policy, so that its default_pool holds{asks}"
    return f"{answer.pool} ({answer.mode} mode, policy {answer.policy_version}){how}"


def _next(answer: "file_views.FaultExplanation") -> list[tuple[str, str]]:
    """What comes next, and what would if it were let. Where nothing is ever tried, nothing comes after what was."""
    next_step, if_it_acted = (f"{step.next_step}: {step.reason}" for step in (answer, answer.in_act_mode))
    if next_step == if_it_acted:
        return [("next step", next_step)]
    if answer.after and answer.mode == "observe":
        next_step = "none: in observe mode nothing would have been tried"
    return [("next step", next_step), ("if it acted", if_it_acted)]
