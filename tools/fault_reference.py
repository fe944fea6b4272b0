"""Generates docs/reference/faults.md: the fault catalog as a page for the person on call, with an anchor for each
fault.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from nodeheal.contract.vocabulary import Action, Family, NextStepCondition, Scope, Verdict
from nodeheal.domain.faults.catalog import ANY_CODE, CatalogRow, catalog
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.verbs import VERBS

# Characters in a row's text that Markdown, or a table's cell, would interpret.
_SPECIAL = re.compile(r"([|*`\[\]\\])")
_CROSS_REFERENCE = re.compile(r"\bXid (\d+)\b")
# The ends of many rows' meanings: in a row the words, in the introduction what they stand for.
_ENDS = {
    "Unused": "the vendor marks the code as unused since Ampere, so no current data-center GPU should print it.",
    "Port stalls": "traffic of the GPU behind the port stalls, and its job hangs or dies with Xid 74 or 45.",
    "Fabric down": "the whole NVLink fabric of the node is unusable and every multi-GPU job on it is dead.",
    "Channel dies": "the channel of that program is torn down and its job dies.",
    "Packets lost": "its packets are lost and the job over it dies or hangs.",
    "Corrected": "hardware corrected all of them and no packet was lost.",
}
# A table says before its rows what more than half of them, and at least so many, have in a column.
_USUAL_ROWS = 4
# How a row of such a table says that it has nothing there.
_NOTHING = {"On": "all", "Keep": "none", "Source": "none"}
# A reason of so few words is not worth a link.
_SHORT_REASON_WORDS = 6
_HEADER = ("code", "fault", "scope, verdict", "what is done", "keep", "why", "source")

_FAMILIES = {
    Family.xid: ("NVIDIA GPUs: Xid", "What the driver prints into the kernel log as `NVRM: Xid`."),
    Family.sxid: (
        "NVSwitch: SXid",
        "What the driver prints about an NVSwitch as `SXid`. Fatal or not stands in the line.",
    ),
    Family.dcgm: ("NVIDIA DCGM", "Errors and tests of `dcgmi diag`, and the findings of `dcgmi health`."),
    Family.nvml: ("NVIDIA driver library (NVML)", "What `nvidia-smi` shows."),
    Family.neuron: ("AWS Neuron", "Hardware errors, runtime statuses (by name and by number), and the driver's lines."),
    Family.efa: ("Elastic Fabric Adapter", "Counters and states of the adapters, and their driver's lines."),
    Family.ib: ("InfiniBand and ConnectX", "Counters and states of the adapters, and their driver's lines."),
    Family.pcie_aer: ("PCI Express", "What the kernel reports about PCIe links and devices."),
    Family.mce: ("Machine checks", "What the kernel reports about the host's processors and memory."),
    Family.oom: ("Out of memory", "The kernel's out-of-memory killer."),
    Family.nvrm_other: ("NVIDIA driver, without an Xid", "Lines of the driver that carry no Xid."),
    Family.host: ("The host", "Disks, services, counts of devices, and what AWS says about the machine."),
    Family.heartbeat: ("Heartbeats", "Whether the agents' heartbeats arrive."),
    Family.task: ("Tasks of a job", "How a container of a job ended."),
    Family.own: (
        "Checks of your own",
        "What checks of your own (`docs/agent.md`) report, as `own/NAME/CODE`. The catalog has no row of them: a human"
        " is told, unless the policy's `overrides` give them a ladder.",
    ),
}

_SCOPES = {
    Scope.application: "the job's own program; the node stays in service",
    Scope.accelerator: "one GPU or Neuron device",
    Scope.link: "a link, of which one end is bad: reported by two nodes, it is diagnosed before one is replaced",
    Scope.node: "the whole node",
    Scope.fabric: "what several GPUs or nodes share: one fabric, one incident",
}

_VERDICTS = {
    Verdict.OK: "nothing is wrong; listed because it explains other lines",
    Verdict.DEGRADED: "it still works; worth counting",
    Verdict.UNKNOWN: "not known. That is no reason to act, and none to call it healthy",
    Verdict.FAILED: "something is broken, or the job has died of it",
}

# The condition of the second escalation step: (in a row, in the introduction).
_NEXT_STEP_CONDITIONS = {
    NextStepCondition.unproven: (
        "",
        "the repair was not proven by a new boot id and passed diagnostics",
    ),
    NextStepCondition.repeated: (
        "if repeated",
        "on the same accelerator, as often as `correlation.repeats` says, in `correlation.repeat_window_seconds`",
    ),
    NextStepCondition.other_job: (
        "under another job",
        "on the same accelerator, under as many jobs as `correlation.other_jobs` says: not the program, the hardware",
    ),
    NextStepCondition.job_end: (
        "after the job",
        "at once if none runs; a human is told if it does not end in time",
    ),
}

_HEAD = """\
The {count} faults that nodeheal knows, what it does about each, and why. It is the catalog
(`nodeheal/domain/faults/catalog.csv`) as a page. `nodeheal explain xid 79` says the same about one fault, under your
policy.

**At 3 a.m.:** search this page for the code in the email (`xid/79` is the row [79](#xid-79) of *Xid*), or put it behind
the page's address: `faults.md#xid-79`, `faults.md#xid-145-RLW_REMAP-0x00000004`. Then read *what is done* and *why*.

- **A code that is not here goes to a human, never to a reboot.** A sub-code that is not here counts as its unit (what
  stands before the last `/`), and a unit that is not here as its code. An SXID whose number is not here, or whose line
  says *Fatal* where the row does not (or the reverse), counts as `any` with the word of the line.
- A fault that only accompanies another one of the same node, and says nothing of its own, asks for nothing beside it:
  Xid 74 beside a 79, 119, 120, 154, 175 or SXID, 171 and 172 beside a 48, 94 or 95 of the same GPU, within
  `correlation.window_seconds`. The other fault must itself ask for an action on the job or the node.
- Nothing is done in a pool whose mode is `observe`, which is the default: decisions are told, and no node is touched.
- *What is done* is a ladder. The first action, in bold, is the least that may help; later steps do more. Read each `;`
  as "if that did not help". When all are used up, a human is asked. A ladder never goes down again within the window of
  its attempts.
- Attempts are counted in five budget groups: RESET_GPU, REBOOT, STOP_START, REPLACE, RESTART_WORKLOAD. By default a
  node (for RESTART_WORKLOAD: a job) has: {limits}. See
  [policy.md](policy.md).
- RESET_GPU is a reboot, unless the pool has switched on `reset_gpu`: then that GPU is reset first.
{ends}
- *Keep* is the evidence worth saving before a reboot wipes it, the most telling first.
- *On* names the GPU generations and drivers that the sources know the code on; without it, all. H100 stands for H200
  and GH200 too, B100 for B200 and B300, GB200 for GB300, A100 for A30. A destructive action is not taken on another
  of these generations: a human looks. Another product is treated as if it were listed there.
- What most rows of a table have in common, stands before it: *On*, *Keep* or *Source*. Their own cells are empty then.
- *Why* gives our reason, and in brackets what others do where they differ. Where faults share a reason, the first one
  says it and the others link to that row. No vendor's table is read at run time."""

_OVERRIDING = """\
To treat a fault otherwise, name it in the policy document, with a reason that every decision will give:

```json
{"overrides": [{"fault": "xid/79", "ladder": ["REPLACE"], "pools": ["h100"], "why": "Here the second never helped."}]}
```

`nodeheal policy check` reads it, `nodeheal policy diff` shows which faults it changes, `nodeheal policy apply` puts it
into force: see [policy.md](policy.md)."""


def faults() -> str:
    """Return the whole page."""
    rows = list(catalog().values())
    lines = [*_head(len(rows)), "", "## At a glance", "", *_summary(rows)]
    for family in Family:
        lines += ["", *_family(family, [row for row in rows if row.family is family])]
    return "\n".join([*lines, ""])


def anchor(row: CatalogRow) -> str:
    """Return the anchor of a row. Case matters: ib/LINK_DOWN and ib/link_down are two faults."""
    return row.key.replace("/", "-")


def done(row: CatalogRow) -> str:
    """Return the ladder in words: the first action in bold, then each further one. `;` is "if that did not help"."""
    first, *later = [
        f"{action} (or a REBOOT, where it is off)" if action is Action.RESET_GPU else action.value
        for action in row.ladder
    ]
    condition = _NEXT_STEP_CONDITIONS[row.next_rung][0]
    if later and condition:
        later[0] = f"{condition}: {later[0]}"
    return "; ".join([f"**{first}**", *later])


def _head(count: int) -> Iterator[str]:
    """Return the introduction."""
    yield "# Faults"
    yield from ("", "Generated by `make reference`; do not edit.", "")
    ends = "\n".join(f"- *{words}*: {end}" for words, end in _ENDS.items())
    yield _HEAD.format(count=count, limits=_limits(), ends=ends)
    actions = {action: VERBS[action].reference for action in Action}
    for title, words in (("Scope", _SCOPES), ("Verdict", _VERDICTS), ("Action", actions)):
        yield from ("", _line([title.lower(), "meaning"]), _line(["---", "---"]))
        yield from (_line([word.value, meaning]) for word, meaning in words.items())
    yield from (
        "",
        "The second escalation step comes:",
        "",
        _line(["next escalation step", "in a row", "meaning"]),
        _line(["---"] * 3),
    )
    yield from (_line([word.value, said or ";", meaning]) for word, (said, meaning) in _NEXT_STEP_CONDITIONS.items())
    yield from ("", _OVERRIDING)


def _limits() -> str:
    """Return the policy's default attempts for a node, in words."""
    limits = RecoveryPolicy().limits.values()
    return ", ".join(f"{limit.group} {limit.limit} in {limit.window_seconds / 3600:g} h" for limit in limits)


def _summary(rows: list[CatalogRow]) -> Iterator[str]:
    """Return how many faults of each family begin with which action."""
    yield _line(["family", "faults", *(action.value for action in Action)])
    yield _line(["---", "--:", *("--:" for _ in Action)])
    for family in Family:
        firsts = Counter(row.action for row in rows if row.family is family)
        link = f"[{family.value}](#family-{family.value})"
        yield _line([link, str(firsts.total()), *(str(firsts[action] or "") for action in Action)])
    firsts = Counter(row.action for row in rows)
    yield _line(["all", str(len(rows)), *(str(firsts[action] or "") for action in Action)])


def _family(family: Family, rows: list[CatalogRow]) -> Iterator[str]:
    title, sentence = _FAMILIES[family]
    codes = [row for row in rows if not row.subcode or row.code == ANY_CODE]
    divided = {row.code for row in rows if row.subcode and row.code != ANY_CODE}
    yield from (f'<a id="family-{family.value}"></a>', "", f"## {title}", "", sentence)
    if rows:
        yield from ("", *_table(codes, divided))
    for whole in codes:
        if whole.code in divided:
            yield from ("", f'<a id="{anchor(whole)}-subcodes"></a>', "")
            yield from (f"### {whole.key}: {_plain(whole.name)}, by sub-code", "")
            yield from _table(row for row in rows if row.code == whole.code and row.subcode)


def _table(rows: Iterable[CatalogRow], divided: Iterable[str] = ()) -> Iterator[str]:
    """Return a table, and before it what most of its rows have in a column: their cells are empty."""
    rows = list(rows)
    usual = {name: value for name, column in _COLUMNS.items() if (value := _usual([column(row) for row in rows]))}
    if usual:
        yield f"Unless a row says otherwise: {' '.join(f'*{name}:* {value}.' for name, value in usual.items())}"
        yield ""
    yield _line(_HEADER)
    yield _line(["---"] * len(_HEADER))
    for row in rows:
        yield _line(_cells(row, row.code in divided, usual))


def _usual(values: list[str]) -> str:
    """Return the value of more than half of the rows, or nothing."""
    value, count = Counter(values).most_common(1)[0] if values else ("", 0)
    return value if count > len(values) / 2 and count >= _USUAL_ROWS else ""


def _cells(row: CatalogRow, has_subcodes: bool, usual: Mapping[str, str]) -> list[str]:
    here = anchor(row)
    spelled = f"{row.code}/{row.subcode}" if row.code == ANY_CODE else row.subcode or row.code
    code = f'<a id="{here}"></a>[{spelled}](#{here})'
    if has_subcodes:
        code += f"<br>[its sub-codes](#{here}-subcodes)"
    cell = {
        name: "" if value == usual.get(name) else value or (_NOTHING[name] if name in usual else "")
        for name, value in ((name, column(row)) for name, column in _COLUMNS.items())
    }
    meaning = linked(row.meaning, row)
    for words, end in _ENDS.items():
        meaning = meaning.replace(f"; {linked(end, row)}", f". *{words}.*")
    return [
        code,
        f"**{_plain(row.name)}**<br>{meaning}" + (f"<br>On: {cell['On']}" if cell["On"] else ""),
        f"{row.scope}, {row.verdict}",
        done(row),
        cell["Keep"],
        _why(row),
        cell["Source"],
    ]


def _on(row: CatalogRow) -> str:
    return _plain("; ".join(filter(None, [", ".join(row.products), row.drivers])))


_COLUMNS: dict[str, Callable[[CatalogRow], str]] = {
    "On": _on,
    "Keep": lambda row: ", ".join(row.keep),
    "Source": lambda row: _plain(row.source),
}


def _why(row: CatalogRow) -> str:
    """Return the reason, or a link to the first fault that has the same one."""
    first = _first_with_each_reason()[row.why]
    is_short = len(row.why.split()) <= _SHORT_REASON_WORDS
    return linked(row.why, row) if first == row or is_short else f"As [{first.key}](#{anchor(first)})"


@cache
def _first_with_each_reason() -> dict[str, CatalogRow]:
    """Return the first fault with each reason: by family, as the page has them, and codes before sub-codes."""
    families = list(Family)
    firsts: dict[str, CatalogRow] = {}
    for row in sorted(catalog().values(), key=lambda row: (families.index(row.family), bool(row.subcode))):
        firsts.setdefault(row.why, row)
    return firsts


def _line(cells: Iterable[str]) -> str:
    return f"|{'|'.join(cells)}|"


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("<", "&lt;").replace("\n", " ")


def linked(text: str, row: CatalogRow) -> str:
    """Return the text, with each other Xid in it as a link."""

    def link(found: re.Match[str]) -> str:
        is_other = row.family is not Family.xid or found[1] != row.code
        return f"[Xid {found[1]}](#xid-{found[1]})" if is_other and ("xid", found[1], "") in catalog() else found[0]

    return _CROSS_REFERENCE.sub(link, _plain(text))
