"""reconcile_records: sets restored records right. See nodeheal/services/operators/reconcile_records.py."""

from lambdas.acting import acting
from lambdas.composition import policy, ports
from nodeheal.contract.acts import ActDone, Actor, Reconcile
from nodeheal.contract.vocabulary import ActKind
from nodeheal.services.operators.reconcile_records import reconcile_records


def _do(act: Reconcile, actor: Actor, key: str) -> ActDone:
    return reconcile_records(act, actor, ports(), policy())


handler = acting(ActKind.RECONCILE, do=_do, needs_whole_records=False)
