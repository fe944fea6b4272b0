"""The home of each verb: one row with its words, how much it does, what it spends, and who can carry it out.

A verb is what a ladder, an operator or a decision asks for. The decision core, the policy, the emails, the commands,
the simulation and the reference pages read these rows. A new verb is a new row here, beside its word in the vocabulary.

Standard library only: the agent reads the catalog, and the catalog reads this module.
"""

from dataclasses import dataclass

from nodeheal.contract.vocabulary import Action, Provider, Step, VerbName

_DAY = 86_400
_WEEK = 7 * _DAY
_ALL_PROVIDERS = frozenset(Provider)


@dataclass(frozen=True)
class Attempts:
    """A limit of attempts: at most `limit` of them in any `window_seconds`."""

    limit: int
    window_seconds: int


@dataclass(frozen=True)
class VerbSpec:
    """Everything that is known of one verb before anything happens."""

    action: Action | None  # the word of ladders and policies; None: a step that stands in no ladder
    step: Step  # the step of the workflow that carries it out
    operation: VerbName | None = None  # the operation that the step is; None: the step answers at once
    disruptiveness: int = 0  # a ladder goes up in it; of several faults of one node, the highest decides

    # Words
    noun: str = ""  # "reboot"
    article: str = "a"
    plural: str = ""  # as attempts of it are counted: "1 of 1 reboots in 24 h"
    detail: str = ""  # follows the noun where it is announced
    done: str = ""  # what has happened afterwards; timelines name the time that it took so
    healed: str = ""  # how a node that serves again was healed: "was rebooted"
    is_told_by_result: bool = False  # its result says more than `done`: which node took the place, for example
    proposal: str = ""  # what an approval asks: "in act mode nodeheal would …"
    on_yes: str = "healed"  # what a yes does to the node: "it is isolated, then …"
    reference: str = ""  # what the page of faults says of it

    # Rules
    touches_nothing: bool = False  # it only records or asks
    is_escalation_step: bool = False  # a ladder tries it on an isolated node, and diagnostics prove it afterwards
    carried_out_as: Action | None = None  # the verb that stands for it where the pool has not switched it on
    follows: Action | None = None  # it stands in no ladder: where the pool has switched it on, it comes after this one
    keeps_boot: bool = False  # the node does not boot: what it has reported on this boot before says nothing against it
    keeps_machine: bool = False  # the same machine comes back, and has to run for a while before it is trusted
    stops_training: bool = False  # it takes a node, or a whole job, from training
    concerns_hardware: bool = False  # a vendor sees it in the record of a part
    is_askable: bool = False  # an operator may ask for it by hand
    pool_option: str = ""  # the switch of a pool's policy without which no ladder has it; empty: it has none
    providers: frozenset[Provider] = _ALL_PROVIDERS  # whose machines it can be done to

    # Defaults
    deadline: str = "quick_seconds"  # which of the policy's deadlines is its own
    budget_group: Action | None = None  # whose attempts it spends; None: it needs none
    limit: Attempts | None = None  # of a node, or of a job; None: the group's own verb has it
    accelerator_limit: Attempts | None = None  # of one accelerator, whatever node it sits in

    @property
    def with_article(self) -> str:
        """`a reboot`."""
        return f"{self.article} {self.noun}"

    @property
    def announced(self) -> str:
        """`a reboot`, with what people must know of it before it begins."""
        return f"{self.with_article}{self.detail}"

    def is_on(self, pool: object) -> bool:
        """Whether the policy of a pool has this verb at all."""
        return bool(getattr(pool, self.pool_option)) if self.pool_option else self.carried_out_as is None

    @property
    def has_mode(self) -> bool:
        """Whether a pool's policy may say how far nodeheal goes with it by itself."""
        return not self.touches_nothing and (self.carried_out_as is None or bool(self.pool_option))

    @property
    def takes_node_out(self) -> bool:
        """Whether it takes the node out of service."""
        return self.disruptiveness >= DISRUPTIVENESS[Action.ISOLATE]


_ROWS = (
    VerbSpec(
        Action.OBSERVE,
        Step.CLOSE,
        disruptiveness=0,
        proposal="only record it",
        reference="recorded and told without paging; nothing is touched",
        touches_nothing=True,
    ),
    VerbSpec(
        Action.ESCALATE,
        Step.ESCALATE,
        disruptiveness=1,
        proposal="ask a human",
        reference="a human is paged; nothing is touched",
        touches_nothing=True,
    ),
    VerbSpec(
        Action.ISOLATE,
        Step.ISOLATE,
        VerbName.ISOLATE,
        disruptiveness=3,
        noun="isolation",
        article="an",
        done="isolated",
        proposal="isolate the node and ask a human",
        on_yes="left to a human",
        reference="out of service, and a human is asked: no reboot cures it",
        stops_training=True,
        is_askable=True,
        deadline="isolate_seconds",
    ),
    VerbSpec(
        Action.RESET_GPU,
        Step.REBOOT,  # the mildest manner of reboot: of one GPU
        VerbName.RESET_GPU,
        disruptiveness=4,
        noun="GPU reset",
        plural="GPU resets",
        done="GPU reset",
        healed="had its GPU reset",
        proposal="isolate the node, reset its GPU and rerun its diagnostics",
        on_yes="its GPU reset and proven by diagnostics",
        reference="drain, stop the job's tasks, reset the one GPU; where the pool has no `reset_gpu`, a reboot instead",
        is_escalation_step=True,
        carried_out_as=Action.REBOOT,
        keeps_boot=True,
        keeps_machine=True,
        concerns_hardware=True,
        pool_option="reset_gpu",
        deadline="reset_gpu_seconds",
        # Its own attempts: a reset that did not help must leave the one for the reboot that comes next. No limit of the
        # accelerator: the node's holds, and a GPU that needs it again and again makes the node a lemon.
        budget_group=Action.RESET_GPU,
        limit=Attempts(1, _DAY),
    ),
    VerbSpec(
        Action.REBOOT,
        Step.REBOOT,
        VerbName.REBOOT,
        disruptiveness=5,
        noun="reboot",
        plural="reboots",
        done="rebooted",
        healed="was rebooted",
        proposal="isolate the node, reboot it and rerun its diagnostics",
        on_yes="rebooted and proven by diagnostics",
        reference="drain, stop the job's tasks, reboot; back only with a new boot id and passed diagnostics",
        is_escalation_step=True,
        keeps_machine=True,
        concerns_hardware=True,
        is_askable=True,
        deadline="reboot_seconds",
        budget_group=Action.REBOOT,
        limit=Attempts(1, _DAY),
        accelerator_limit=Attempts(2, _WEEK),
    ),
    VerbSpec(
        Action.STOP_START,
        Step.REBOOT,  # another manner of reboot: the same step of the workflow carries it out
        VerbName.STOP_START,
        disruptiveness=6,
        noun="stop and start",
        plural="stops and starts",
        detail=", which moves it to another host",
        done="stopped and started on another host",
        healed="was stopped and started, on another host,",
        proposal="isolate the node, stop it and start it on another host",
        on_yes="stopped and started on another host, which loses what is on its local disks",
        reference="in no ladder: a pool's `stop_start` puts it after the reboot of EC2 nodes that stand alone",
        is_escalation_step=True,
        follows=Action.REBOOT,
        keeps_machine=True,
        pool_option="stop_start",
        providers=frozenset({Provider.ec2}),
        deadline="stop_start_seconds",
        budget_group=Action.STOP_START,
        limit=Attempts(1, _DAY),
    ),
    VerbSpec(
        Action.REPLACE,
        Step.REPLACE,
        VerbName.REPLACE,
        disruptiveness=7,
        noun="replacement",
        plural="replacements",
        done="replaced",
        is_told_by_result=True,
        proposal="isolate the node and replace it",
        on_yes="replaced",
        reference="drain, stop the job's tasks, let a spare take over; the spare is diagnosed first",
        is_escalation_step=True,
        concerns_hardware=True,
        is_askable=True,
        deadline="replace_seconds",
        budget_group=Action.REPLACE,
        limit=Attempts(1, _DAY),
        accelerator_limit=Attempts(1, _WEEK),
    ),
    VerbSpec(
        Action.RESTART_WORKLOAD,
        Step.RESTART_WORKLOAD,
        disruptiveness=2,
        noun="restart of the job",
        plural="job restarts",
        done="job running again",
        proposal="restart the job",
        reference="the whole job starts again on the same nodes, from its newest complete checkpoint",
        stops_training=True,
        deadline="restart_seconds",
        budget_group=Action.RESTART_WORKLOAD,
        limit=Attempts(10, _DAY),
    ),
    # Steps that no ladder asks for
    VerbSpec(
        None, Step.DIAGNOSE, VerbName.DIAGNOSE, done="diagnosed", concerns_hardware=True, deadline="diagnose_seconds"
    ),
    VerbSpec(None, Step.FREEZE_EVIDENCE, VerbName.FREEZE_EVIDENCE, done="evidence saved"),
    VerbSpec(None, Step.RETURN, done="returned"),
    VerbSpec(None, Step.WAIT, VerbName.WAIT),
    VerbSpec(None, Step.CLOSE),
)

VERBS = {verb.action: verb for verb in _ROWS if verb.action is not None}
# Of several verbs with one step, the one that has its name.
_OF_STEPS = {verb.step: verb for verb in _ROWS if verb.action is None or verb.action.value == verb.step.value}

DISRUPTIVENESS = {
    action: verb.disruptiveness for action, verb in sorted(VERBS.items(), key=lambda row: row[1].disruptiveness)
}
ESCALATION_STEPS = tuple(action for action, verb in VERBS.items() if verb.is_escalation_step)
# The steps that do something. The dashboard counts those that fail.
ACTING_STEPS = tuple(dict.fromkeys(verb.step for verb in _ROWS if verb.done))


def verb_of_step(step: Step, action: Action | None = None) -> VerbSpec:
    """The row of a step. `action`: which verb it carries out, where the decision says so."""
    verb = VERBS[action] if action is not None else None
    return verb if verb is not None and verb.step is step else _OF_STEPS[step]
