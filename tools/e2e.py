"""`make e2e`: deploys nodeheal to a real account, runs a drill on a node, watches the recovery, and removes everything
again.

It follows docs/first-account.md: steps 2 to 5 and 9, and with `--ec2` the replacement of step 7. It costs cents and
reboots one node; `--ec2` makes nodeheal terminate an EC2 instance and launch another. It refuses an account in which
nodeheal is deployed already, begins only when the account and the Region have been typed, and removes what it created,
also after a failure or Ctrl-C. It deletes no table, bucket or AppConfig application that existed before. `--dry-run`
prints its commands, to be pasted.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nodeheal.contract import names
from nodeheal.contract.health_event import NODE_ID_PATTERN
from stacks.settings import CONTEXT_KEY, REPOSITORY, STAGE_KEY, Email, Pool, SettingsError, Stage, load_settings

WHY = "end-to-end drill"
POLICY = {
    "default_pool": {"mode": "observe"},
    "stable_seconds": 10,
    "pools": {"{pool}": {"mode": "act", "drills": True, "budget": {"max_nodes": 1, "floor_nodes": 1}}},
}
NODE_SECONDS, DRILL_SECONDS = 900.0, 3_600.0
LOOK_EVERY_SECONDS = 5.0
SETTLE_SECONDS = 90.0  # a function caches the policy for a minute
DRY_RUN = Path("build") / "e2e"  # in the repository: the folder for files of a dry run's commands
NODE, EC2_NODE = "NODE", "EC2_NODE"  # in a dry run, instead of the ids
BAD_INPUT = 2  # exit code of nodeheal for words that it does not know
INTERRUPTED = 130  # exit code after Ctrl-C
NOT_TAKEN_AWAY = "not everything was removed. docs/operations.md, Uninstall, says how"
Ask = Callable[[str], str]


class E2eFailed(Exception):
    """The run failed; the message says how."""


@dataclass(frozen=True)
class E2e:
    """One run. `cluster`: of its nodes. `flag`: its changes of the settings in cdk.json.

    `context`: further words for the CDK, as KEY=VALUE. `directory`: the run's files.
    """

    cluster: str
    flag: dict[str, object]
    pool: str
    directory: Path
    context: Sequence[str] = ()
    is_ec2: bool = False
    keeps_data: bool = False
    look_every: float = LOOK_EVERY_SECONDS
    settle: float = SETTLE_SECONDS

    def cdk(self, verb: str, *words: str) -> list[str]:
        """Return a command of the CDK's CLI over the stack."""
        changed = [f"{CONTEXT_KEY}={json.dumps(self.flag)}"] if self.flag else []
        given = [word for pair in (*changed, *self.context) for word in ("-c", pair)]
        where = ["--app", f"{shlex.quote(sys.executable)} app.py", "--output", str(self.directory / "cdk.out")]
        cli = str(REPOSITORY / "node_modules" / ".bin" / "cdk")
        return [cli, verb, *words, "--no-version-reporting", "--no-notices", "--ci", *given, *where]

    def note(self) -> list[str]:
        """Return the command that records which history exists before the deployment: an earlier one may have left its
        own.
        """
        return leftovers("list", "--into", str(self.noted))

    def deploy(self) -> list[str]:
        """Return the command that deploys, where an earlier deployment may have left its table and its bucket."""
        return self.cdk("deploy", "--require-approval", "never", "--import-existing-resources")

    def prepare(self) -> list[str]:
        """Return the command that activates the drill's policy."""
        return nodeheal("policy", "apply", str(self.policy), "--why", WHY)

    def enroll(self, node: str) -> list[str]:
        """Return the command that permits nodeheal to act on this node."""
        of = ("--pool", self.pool, "--cluster", self.cluster, "--scheduler", "ECS")
        return nodeheal("nodes", "enroll", node, *of, "--why", WHY)

    def tear_down(self, nodes: Sequence[str]) -> list[list[str]]:
        """Return the commands that remove everything: tags, what holds the nodes' role, the stack, and the history of
        this run.
        """
        retire = [nodeheal("nodes", "retire", node, "--why", WHY) for node in nodes]
        delete = [] if self.keeps_data else [leftovers("delete", "--but", str(self.noted))]
        return [*retire, leftovers("release"), self.cdk("destroy", "--force"), *delete]

    @property
    def noted(self) -> Path:
        """Return the file that `note` writes."""
        return self.directory / "before.json"

    @property
    def policy(self) -> Path:
        """Return the file that `prepare` reads."""
        return self.directory / "policy.json"

    @property
    def document(self) -> str:
        """Return the policy of the drill: it acts on its own pool, and on no other."""
        return json.dumps(POLICY).replace("{pool}", self.pool)


def nodeheal(*words: str) -> list[str]:
    """Return a command of the operator's."""
    return [str(Path(sys.executable).with_name("nodeheal")), *words]


def leftovers(*words: str) -> list[str]:
    """Return a command of tools/leftovers.py."""
    return [sys.executable, "-m", "tools.leftovers", *words]


def inject(node: str) -> list[str]:
    """Return the command that makes the node report a fault that it does not have."""
    return nodeheal("inject", node, "--xid", "79", "--why", WHY)


def replace_machine(node: str) -> list[str]:
    """Return the command that makes nodeheal launch another EC2 instance in the place of this one, and terminate this
    one.
    """
    return nodeheal("nodes", "replace", node, "--why", WHY)


# Before the deployment, after it and when the node is enrolled. A person reads the findings; an unconfirmed address is
# no reason to stop.
DOCTOR = nodeheal("doctor")


def dry_run(e2e: E2e) -> str:
    """Print every command in order, quoted for a shell. Nothing is run."""
    folder = shlex.quote(str(e2e.directory))
    ec2 = [e2e.enroll(EC2_NODE), replace_machine(EC2_NODE)] if e2e.is_ec2 else []
    nodes = [NODE, EC2_NODE] if e2e.is_ec2 else [NODE]
    lines = [
        f"cd {shlex.quote(str(REPOSITORY))}",
        *([f"export PATH={shlex.quote(str(Path(node).parent))}:$PATH"] if (node := shutil.which("node")) else []),
        f"mkdir -p {folder} && printf %s {shlex.quote(e2e.document)} > {shlex.quote(str(e2e.policy))}",
        *map(shlex.join, [DOCTOR, e2e.note(), e2e.deploy(), DOCTOR]),
        f"# {', '.join(nodes)}: the ids of nodes whose agents have reported",
        *map(shlex.join, [e2e.prepare(), e2e.enroll(NODE), DOCTOR, inject(NODE)]),
        "# wait until `nodeheal incidents list` says RECOVERED",
        *map(shlex.join, ec2),
        *(["# wait again; the instance that was launched must be retired as well"] if ec2 else []),
        *map(shlex.join, [*e2e.tear_down(nodes), leftovers("list")]),
        f"rm -r {folder}",
    ]
    return "\n".join(lines)


def confirm(account: str, region: str, ask: Ask) -> None:
    """Ask for the account and the Region to be typed. Raises E2eFailed."""
    wanted = f"{account} {region}"
    typed = ask(f"This deploys nodeheal, reboots one node and removes nodeheal again. Type '{wanted}' to continue: ")
    if typed.strip() != wanted:
        raise E2eFailed("not confirmed: nothing was done")


def refuse_where_it_is_deployed(client: Any) -> None:
    """Refuse an existing deployment, which the end of the run would remove. Raises E2eFailed."""
    known = {
        stack["StackName"] for page in client.get_paginator("describe_stacks").paginate() for stack in page["Stacks"]
    }
    if names.STACK in known:
        raise E2eFailed(
            "nodeheal is deployed here, and this run would remove it. Use an account or a Region without it"
        )


def play(e2e: E2e, ask: Ask) -> None:
    """Deploy, run the drill, watch; remove what was created, whatever happened. Raises E2eFailed."""
    run(DOCTOR, must=False)
    run(e2e.note())
    nodes: list[str] = []
    try:
        run(e2e.deploy())
        run(DOCTOR, must=False)
        _drill(e2e, ask, nodes)
        if e2e.is_ec2:
            _replace_a_machine(e2e, ask, nodes)
        run(nodeheal("incidents", "list", e2e.pool, "--since", "1d"))
    finally:
        _take_away(e2e, nodes, sys.exception())


def _take_away(e2e: E2e, nodes: Sequence[str], failure: BaseException | None) -> None:
    """Remove everything. Raises E2eFailed where something stays, and names the failure of the run as well."""
    why = f"{failure}; " if isinstance(failure, E2eFailed) else ""
    try:
        launched = [node for node in nodes_of(e2e.pool) if node not in nodes]
        failed = [command for command in e2e.tear_down([*nodes, *launched]) if not run(command, must=False)]
        run(leftovers("list"), must=False)
    except KeyboardInterrupt:
        raise E2eFailed(f"{why}the removal was interrupted: {NOT_TAKEN_AWAY}") from failure
    if failed:
        raise E2eFailed(f"{why}{shlex.join(failed[0])} failed: {NOT_TAKEN_AWAY}") from failure


def _drill(e2e: E2e, ask: Ask, nodes: list[str]) -> None:
    """Run step 5: a node reports a fault, and recovers by a reboot."""
    node = _node(
        ask,
        "Give a node the role that the output NodeRoleArn names, and the ECS agent's own policy with it. Say "
        f'pool = "{e2e.pool}" and drills = true in its agent.toml, and install the agent (docs/agent.md). '
        "Its id, mi-... or i-...: ",
    )
    wait(lambda: is_heard(node), NODE_SECONDS, e2e.look_every, f"the agent of {node} has reported")
    nodes.append(node)
    e2e.policy.write_text(e2e.document, encoding="utf-8")
    run(e2e.prepare())
    run(e2e.enroll(node))
    time.sleep(e2e.settle)
    run(DOCTOR, must=False)
    _recover(e2e, inject(node), f"{node} has recovered")


def _replace_a_machine(e2e: E2e, ask: Ask, nodes: list[str]) -> None:
    """Run step 7: an EC2 instance is terminated, and one launched from its template takes its place."""
    node = _node(
        ask,
        "Launch one EC2 instance from a template with the tag nodeheal:managed on both (docs/ec2.md), with the same "
        "role and agent.toml. nodeheal terminates it and launches another, which you terminate at the end. "
        "Its id, i-...: ",
    )
    wait(lambda: is_heard(node), NODE_SECONDS, e2e.look_every, f"the agent of {node} has reported")
    nodes.append(node)
    run(e2e.enroll(node))
    _recover(e2e, replace_machine(node), f"{node} is replaced")
    nodes.remove(node)  # it is terminated: its tags are gone


def _recover(e2e: E2e, begin: list[str], what: str) -> None:
    """Begin an incident, and wait until it has ended in recovery. Earlier ones of the pool do not count."""
    before = endings(e2e.pool)
    run(begin)
    wait(lambda: has_recovered(endings(e2e.pool), before), DRILL_SECONDS, e2e.look_every, what)


def _node(ask: Ask, question: str) -> str:
    typed = ask(question).strip()
    if not re.match(NODE_ID_PATTERN, typed):
        raise E2eFailed(f"{typed!r} is not an id of a node")
    return typed


def nodes_of(pool: str) -> list[str]:
    """Return the nodes of the pool that nodeheal may act on; none where the query fails."""
    listed = subprocess.run(nodeheal("nodes", "list", pool, "--json"), capture_output=True, check=False)
    rows = json.loads(listed.stdout or b"[]") if listed.returncode == 0 else []
    return [row["node"] for row in rows if row["state"] != "RETIRED"]


def is_heard(node: str) -> bool:
    """Whether its agent has reported."""
    return subprocess.run(nodeheal("nodes", "show", node), capture_output=True, check=False).returncode == 0


def endings(pool: str) -> dict[str, str | None]:
    """Return how each incident of the pool has ended; None: it is open. Raises E2eFailed for words that are refused."""
    listed = subprocess.run(
        nodeheal("incidents", "list", pool, "--since", "1d", "--json"), capture_output=True, check=False
    )
    if listed.returncode == BAD_INPUT:  # asking again would not help
        raise E2eFailed(f"incidents list: {listed.stderr.decode('utf-8', 'replace').strip()}")
    return {one["incident"]: one["ending"] for one in json.loads(listed.stdout or b"[]")}


def has_recovered(found: dict[str, str | None], before: dict[str, str | None]) -> bool:
    """Whether a new incident has ended in recovery. Raises E2eFailed where one has ended otherwise."""
    new = {ending for incident, ending in found.items() if incident not in before and ending}
    if new - {"RECOVERED"}:
        raise E2eFailed(f"the incident ended {', '.join(sorted(new))}: `nodeheal incidents show` says why")
    return bool(new)


def run(command: list[str], *, must: bool = True) -> bool:
    """Run a command with visible output; whether it succeeded. Raises E2eFailed where it fails and must not."""
    say(f"$ {shlex.join(command)}")
    done = subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0 and must:
        raise E2eFailed(f"it ended with {done.returncode}: {' '.join(command[:3])}")
    return done.returncode == 0


def wait(is_so: Callable[[], bool], seconds: float, every: float, what: str) -> None:
    """Wait until the condition is true. Raises E2eFailed."""
    say(f"waiting until {what}, {seconds / 60:.0f} minutes at most")
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise E2eFailed(f"gave up waiting until {what}")
        time.sleep(every)


def say(text: str) -> None:
    """Print one line, unbuffered."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None, ask: Ask = input) -> int:
    """Return 0: the node was healed; 1: it was not, or nothing was done; 130: interrupted by Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make e2e", description=__doc__)
    parser.add_argument("--cluster", help="the ECS cluster of the node; without it, that of cdk.json")
    parser.add_argument("--pool", default="e2e", type=_pool, help="the pool that the node's agent.toml names")
    parser.add_argument("--email", action="append", type=_email, help="who is notified, instead of those of cdk.json")
    parser.add_argument(
        "--context", action="append", default=[], type=_context, metavar="KEY=VALUE", help="for the CDK"
    )
    parser.add_argument("--ec2", action="store_true", help="also replace an EC2 instance that you launch; it costs")
    parser.add_argument("--keep-data", action="store_true", help="keep the table, the bucket and the policy at the end")
    parser.add_argument("--look-every", type=float, default=LOOK_EVERY_SECONDS, help="seconds between two queries")
    parser.add_argument(
        "--settle", type=float, default=SETTLE_SECONDS, help="seconds until all functions use the new policy"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
    given = parser.parse_args(arguments)
    said = {"cluster": given.cluster, "alert_emails": given.email}
    flag = {key: value for key, value in said.items() if value}
    try:
        settings = load_settings(CommandLine(flag))
    except SettingsError as error:
        parser.error(str(error))
    directory = DRY_RUN if given.dry_run else Path(tempfile.mkdtemp(prefix="nodeheal-e2e-"))
    e2e = E2e(
        settings.cluster,
        flag,
        given.pool,
        directory,
        given.context,
        given.ec2,
        given.keep_data,
        look_every=given.look_every,
        settle=given.settle,
    )
    if given.dry_run:
        say(dry_run(e2e))
        return 0
    return _play(e2e, ask)


def _play(e2e: E2e, ask: Ask) -> int:
    """Run it, and remove its directory after a success: it stays after a failure."""
    try:
        _play_where_it_may(e2e, ask)
    except E2eFailed as failed:
        say(f"e2e: {failed}")
        if any(e2e.directory.iterdir()):
            say(f"e2e: its files are in {e2e.directory}")
        else:
            e2e.directory.rmdir()
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(e2e.directory)
        say("e2e: broken off")
        return INTERRUPTED
    shutil.rmtree(e2e.directory)
    say("e2e: the node was healed")
    return 0


class CommandLine:
    """A source of settings for `load_settings`: an app that is given this flag."""

    def __init__(self, flag: dict[str, object]) -> None:
        self._flag = flag

    def try_get_context(self, key: str) -> str | None:
        """Return the value, as a construct's node does."""
        return json.dumps(self._flag) if key == CONTEXT_KEY else None


def _pool(text: str) -> str:
    return _of(Pool, text, "a pool's name is 1 to 64 letters, digits, dots, hyphens and underscores")


def _email(text: str) -> str:
    return _of(Email, text, "not an email address")


def _of(kind: Any, text: str, wrong: str) -> str:
    try:
        return str(TypeAdapter(kind).validate_python(text))
    except ValidationError:
        raise argparse.ArgumentTypeError(f"{text!r}: {wrong}") from None


def _context(text: str) -> str:
    key, is_pair, value = text.partition("=")
    if not is_pair or not re.fullmatch(r"\S+", key):
        raise argparse.ArgumentTypeError(f"{text!r}: must be KEY=VALUE")
    if key == CONTEXT_KEY:
        raise argparse.ArgumentTypeError(f"{text!r}: set nodeheal's settings in cdk.json")
    if key == STAGE_KEY and value not in list(Stage):
        raise argparse.ArgumentTypeError(f"{text!r}: the stage is one of {', '.join(Stage)}")
    return text


def _play_where_it_may(e2e: E2e, ask: Ask) -> None:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    region = os.environ.get("AWS_REGION") or boto3.Session().region_name
    if not region:
        raise E2eFailed("which Region? Set AWS_REGION")
    # Every command of the run inherits it: the CDK's CLI and `nodeheal` read it.
    os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
    try:
        refuse_where_it_is_deployed(boto3.client("cloudformation", region_name=region))
        account = boto3.client("sts", region_name=region).get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise E2eFailed(f"AWS cannot be reached, so nothing was done: {error}") from error
    confirm(account, region, ask)
    play(e2e, ask)


if __name__ == "__main__":
    sys.exit(main())
