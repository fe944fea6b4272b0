"""The pages that a person sees behind the links of an approval email. Plain HTML, readable on a phone."""

from html import escape
from urllib.parse import parse_qs

from nodeheal.domain.approval import Answer, LinkRefused
from nodeheal.domain.incident import History
from nodeheal.services.answer_approval import Answered

LONGEST_NAME, LONGEST_WHY = 80, 300
_STYLE = (
    "body{font:1.05rem/1.5 system-ui,sans-serif;max-width:38rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a}"
    "dt{color:#666;margin-top:.6rem}dd{margin:0}input{font:inherit;width:100%;box-sizing:border-box;padding:.5rem;"
    "margin:.2rem 0 .8rem;border:1px solid #999;border-radius:.3rem}button{font:inherit;padding:.7rem 1.4rem;border:0;"
    "border-radius:.3rem;color:#fff;background:#1457b8}.refuse{background:#a32020}"
)
_ASKED = {Answer.approve: ("Approve", "approve"), Answer.refuse: ("Refuse", "refuse")}


def question(history: History, turn: int, answer: Answer) -> str:
    """What was asked in this turn, and the button that answers it."""
    incident = history.incident
    asked = history.turns[turn - 1].decision if 0 < turn <= len(history.turns) else None
    word, style = _ASKED[answer]
    facts = {
        "Node": f"{incident.node_id} (pool {incident.pool})",
        "Job": incident.job_id or "none of ours",
        "What nodeheal would do, and why": asked.reason if asked else "",
        "Evidence": incident.root.evidence[:500],
        "Incident": incident.incident_id,
    }
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    form = (
        f'<form method="post"><label>Your name<input name="who" required maxlength="{LONGEST_NAME}"></label>'
        f'<label>Why (goes on record)<input name="why" maxlength="{LONGEST_WHY}"></label>'
        f'<button class="{style}">{word}</button></form>'
    )
    return _page(f"{word}?", f"<dl>{rows}</dl>{form}<p>Nothing has been decided yet.</p>")


def outcome(answered: Answered) -> str:
    """What became of the answer."""
    title = "Thank you" if answered.is_taken else "Not counted"
    return _page(title, f"<p>{escape(answered.text)}</p>")


def refusal(why: str) -> str:
    """A link that answers nothing."""
    return _page("This link does nothing", f"<p>{escape(why)}</p>")


def read_form(body: str) -> tuple[str, str]:
    """(who, why) of a form that was sent. Raises LinkRefused for one without a name."""
    sent = parse_qs(body, max_num_fields=8)
    who = " ".join(sent.get("who", [""])[0].split())[:LONGEST_NAME]
    if not who:
        raise LinkRefused("say who you are: the answer goes on record with a name")
    return who, " ".join(sent.get("why", [""])[0].split())[:LONGEST_WHY]


def _page(title: str, content: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>nodeheal: {escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{content}</body></html>"
    )
