"""do_act: what operators do with nodes, incidents and breakers. See nodeheal/services/operators/do_act.py."""

from lambdas.acting import acting
from lambdas.composition import policy, ports
from nodeheal.contract.acts import ActDone, Actor, OperatorAct
from nodeheal.contract.vocabulary import ActKind
from nodeheal.services.operators.do_act import do_act


def _do(act: OperatorAct, actor: Actor, key: str) -> ActDone:
    return do_act(act, actor, key, ports(), policy())


handler = acting(
    ActKind.APPROVE,
    ActKind.REFUSE,
    ActKind.ISOLATE,
    ActKind.DRAIN,
    ActKind.DIAGNOSE,
    ActKind.REBOOT,
    ActKind.REPLACE,
    ActKind.RELEASE,
    ActKind.ENROLL,
    ActKind.RETIRE,
    ActKind.CLOSE_INCIDENT,
    ActKind.RESET_BREAKER,
    do=_do,
)
