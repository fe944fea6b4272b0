"""The pages that a person sees behind the links of an approval email. Plain HTML, readable on a phone."""

import re
from base64 import b64decode
from collections.abc import Mapping
from html import escape
from urllib.parse import parse_qs

from nodeheal.domain.fleet.unmanaged_tasks import job_text
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import ABOUT_DRILLS, History, Incident, short_id
from nodeheal.operations.questions import find_question, recorded_answer
from nodeheal.ports import Ports
from nodeheal.services.operators.answer_approval import AnswerReceipt
from nodeheal.services.operators.describe_answer import describe_answer

LONGEST_NAME, LONGEST_WHY = 80, 300
# Both fields in an alphabet of which each character takes twelve in a form, and room for another page's habits.
LONGEST_FORM, FIELDS = 8_192, 8
FORM = "application/x-www-form-urlencoded"
_CUT_SHORT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TOO_LONG = "the form is too long: a name and a reason are all that is asked for"
_UNREADABLE = "the form cannot be read: open the link again, and send the page's own form"
_STYLE = (
    "body{font:1rem/1.4 system-ui,sans-serif;max-width:38rem;margin:.8rem auto;padding:0 1rem;color:#1a1a1a}"
    "h1{font-size:1.3rem;margin:.2rem 0}h2{font-size:1rem;margin:1.4rem 0 0}dl{margin:.4rem 0}"
    "dt{color:#666;margin-top:.4rem}dd{margin:0;overflow-wrap:anywhere}label{display:block}"
    "input{font:inherit;width:100%;box-sizing:border-box;padding:.4rem;margin:.1rem 0 .5rem;border:1px solid #777;"
    "border-radius:.3rem}.answers{display:flex;gap:.8rem}button{font:inherit;flex:1;padding:.7rem;border:0;"
    "border-radius:.3rem;color:#fff;background:#1457b8}button.refuse{background:#a32020}"
)
_WORDS = {Answer.approve: "Approve", Answer.refuse: "Refuse"}
_TAKEN = {Answer.approve: "Approved", Answer.refuse: "Refused"}


def question(history: History, turn: int, answers: Mapping[Answer, str], ports: Ports) -> str:
    """What each answer does, with a button for each, and then what was asked in this turn; or what was decided.

    `answers`: the link of each, the one that was opened first.
    """
    incident = history.incident
    about = history.turns[turn - 1] if 0 < turn <= len(history.turns) else None
    asked = about.decision if about else None
    facts = {
        "Node": f"{incident.node_id} (pool {incident.pool})",
        "Job": job_text(history),
        **({"Drill": ABOUT_DRILLS} if history.is_drill else {}),
        "What nodeheal would do, and why": asked.reason if asked else "",
        "Evidence": incident.root.evidence[:500],
        "Incident": incident.incident_id,
    }
    mine = Question(incident.incident_id, turn)
    waiting, answered = find_question(mine, ports), recorded_answer(mine, history)
    if asked is None or waiting is None or answered is not None or not incident.is_under_way:
        result = about.result.reason if about and about.result else "nothing: the question is no longer open"
        decided = {"What was decided": answered.text if answered else result, "How it ended": incident.summary}
        return _page("This is decided", _rows({**decided, **facts}))
    due = f"{waiting.deadline_at:%Y-%m-%d %H:%M:%S} UTC; silence is no: then it is handed to a human"
    means = describe_answer(asked, incident, ports)
    does = {f"What “{_WORDS[answer]}” does": means[answer] for answer in answers}
    buttons = "".join(
        f'<button class="{answer}" formaction="{escape(link)}">{_WORDS[answer]}</button>'
        for answer, link in answers.items()
    )
    form = (
        f'<form method="post"><label>Your name<input name="who" required maxlength="{LONGEST_NAME}"></label>'
        f'<label>Why (goes on record)<input name="why" maxlength="{LONGEST_WHY}"></label>'
        f'<div class="answers">{buttons}</div></form>'
    )
    opened = f"{_WORDS[next(iter(answers))]}?"
    about_it = f"<h2>What was asked</h2>{_rows(facts)}"
    answer_here = f"{_rows({**does, 'Answer by': due})}{form}<p>Nothing has been decided yet.</p>"
    return _page(f"{opened} {incident.node_id}", f"{answer_here}{about_it}")


def _rows(facts: Mapping[str, str]) -> str:
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value)
    return f"<dl>{''.join(rows)}</dl>"


def outcome(answered: AnswerReceipt, answer: Answer, incident: Incident, ports: Ports) -> str:
    """What became of the answer, what happens now, and where that can be watched."""
    link = ports.console_links.incident(incident.incident_id)
    watch = f'<p><a href="{escape(link)}">Watch it</a></p>' if link else ""
    if not answered.is_taken:
        return _page("Not counted", f"<p>{escape(answered.text)}</p>{watch}")
    now = (
        f"nodeheal goes on with {incident.node_id}. You get an email when it has ended, or when it needs you again."
        if answer is Answer.approve
        else f"Nothing is done to {incident.node_id}. The incident is yours: an email says what is needed."
    )
    story = f"{answered.text}. {now}" if not answered.text.endswith(".") else f"{answered.text} {now}"
    command = f"nodeheal incidents show {short_id(incident.incident_id)}"
    return _page(_TAKEN[answer], f"<p>{escape(story)}</p>{watch}<p><code>{escape(command)}</code></p>")


def refusal(why: str, title: str = "This link does nothing") -> str:
    """A link that answers nothing, or a form that nobody can read."""
    return _page(title, f"<p>{escape(why)}</p>")


class FormRefused(ValueError):
    """A form that the page did not send, or not like this; says why."""


def read_form(content_type: str, body: str, *, is_base64: bool = False) -> tuple[str, str]:
    """(who, why) of a form that was sent. Raises FormRefused for what no browser sends from our page."""
    if content_type.partition(";")[0].strip().lower() != FORM:
        raise FormRefused("send the form of the page that the link opens")
    sent = _fields(_decoded(body) if is_base64 else body)
    who = " ".join(sent.get("who", [""])[0].split())[:LONGEST_NAME]
    if not who:
        raise FormRefused("say who you are: the answer goes on record with a name")
    return who, " ".join(sent.get("why", [""])[0].split())[:LONGEST_WHY]


def _decoded(body: str) -> str:
    """What API Gateway has wrapped."""
    if len(body) > 2 * LONGEST_FORM:
        raise FormRefused(_TOO_LONG)
    try:
        return b64decode(body, validate=True).decode("ascii")
    except ValueError:  # no base64, or characters that a form never has: it spells them
        raise FormRefused(_UNREADABLE) from None


def _fields(form: str) -> dict[str, list[str]]:
    if len(form) > LONGEST_FORM:
        raise FormRefused(_TOO_LONG)
    if _CUT_SHORT.search(form):
        raise FormRefused(_UNREADABLE)
    try:
        return parse_qs(form, max_num_fields=FIELDS, errors="strict")
    except ValueError:  # too many fields, or bytes that are no text
        raise FormRefused(_UNREADABLE) from None


def _page(title: str, content: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>nodeheal: {escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{content}</body></html>"
    )
