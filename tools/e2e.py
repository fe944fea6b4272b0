"""`make e2e`: deploys nodeheal to a real account, drills a node, watches the recovery, and takes everything away again.

It follows docs/first-account.md: steps 2 to 5 and 9, and with `--ec2` the replacement of step 7. It costs cents and
reboots one node; `--ec2` has nodeheal terminate an EC2 instance and launch another. It refuses an account in which
nodeheal is deployed already, begins only when the account and the Region have been typed, and takes away what it made,
also after a failure or Ctrl-C. It deletes no table, bucket or AppConfig application that was there before.
`--dry-run` prints its commands, to be pasted.
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
SETTLE_SECONDS = 90.0  # a function keeps the policy that it has read for a minute
DRY_RUN = Path("build") / "e2e"  # in the repository: where the commands of a dry run put their files
NODE, EC2_NODE = "NODE", "EC2_NODE"  # in a dry run, instead of the ids
INTERRUPTED = 130  # exit code after Ctrl-C
NOT_TAKEN_AWAY = "not everything was taken away. docs/operations.md, Uninstall, says how"
Ask = Callable[[str], str]


class E2eFailed(Exception):
    """It did not go as it should; says what."""


@dataclass(frozen=True)
class E2e:
    """One run. `cluster`: of its nodes. `flag`: the settings that it changes in those of cdk.json.

    `context`: further words for the CDK, as KEY=VALUE. `directory`: where the run keeps its files.
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
        """A command of the CDK's CLI over the stack."""
        changed = [f"{CONTEXT_KEY}={json.dumps(self.flag)}"] if self.flag else []
        given = [word for pair in (*changed, *self.context) for word in ("-c", pair)]
        where = ["--app", f"{shlex.quote(sys.executable)} app.py", "--output", str(self.directory / "cdk.out")]
        cli = str(REPOSITORY / "node_modules" / ".bin" / "cdk")
        return [cli, verb, *words, "--no-version-reporting", "--no-notices", "--ci", *given, *where]

    def note(self) -> list[str]:
        """Notes which history is there before the deployment: an earlier deployment may have left its own."""
        return leftovers("list", "--into", str(self.noted))

    def deploy(self) -> list[str]:
        """Brings it into the account, where an earlier deployment may have left its table and its bucket."""
        return self.cdk("deploy", "--require-approval", "never", "--import-existing-resources")

    def prepare(self) -> list[str]:
        """Puts the policy of the drill into force."""
        return nodeheal("policy", "apply", str(self.policy), "--why", WHY)

    def enroll(self, node: str) -> list[str]:
        """Lets nodeheal act on this node."""
        return nodeheal("nodes", "enroll", node, "--pool", self.pool, "--cluster", self.cluster, "--why", WHY)

    def tear_down(self, nodes: Sequence[str]) -> list[list[str]]:
        """Takes it away again: tags, what holds the nodes' role, the stack, and the history of this run."""
        retire = [nodeheal("nodes", "retire", node, "--why", WHY) for node in nodes]
        delete = [] if self.keeps_data else [leftovers("delete", "--but", str(self.noted))]
        return [*retire, leftovers("release"), self.cdk("destroy", "--force"), *delete]

    @property
    def noted(self) -> Path:
        """Where `note` writes."""
        return self.directory / "before.json"

    @property
    def policy(self) -> Path:
        """Where `prepare` reads."""
        return self.directory / "policy.json"

    @property
    def document(self) -> str:
        """The policy of the drill: it acts on its own pool, and on no other."""
        return json.dumps(POLICY).replace("{pool}", self.pool)


def nodeheal(*words: str) -> list[str]:
    """A command of the operator's."""
    return [str(Path(sys.executable).with_name("nodeheal")), *words]


def leftovers(*words: str) -> list[str]:
    """A command of tools/leftovers.py."""
    return [sys.executable, "-m", "tools.leftovers", *words]


def inject(node: str) -> list[str]:
    """Has the node report a fault that it does not have."""
    return nodeheal("inject", node, "--xid", "79", "--why", WHY)


def replace_machine(node: str) -> list[str]:
    """Has nodeheal launch another EC2 instance in the place of this one, and terminate this one."""
    return nodeheal("nodes", "replace", node, "--why", WHY)


# Before the deployment, after it and when the node is enrolled. A person reads what it finds; an address that has not
# confirmed is no reason to stop.
DOCTOR = nodeheal("doctor")


def dry_run(e2e: E2e) -> str:
    """Every command in order, as a shell takes it. Nothing is done."""
    folder = shlex.quote(str(e2e.directory))
    ec2 = [e2e.enroll(EC2_NODE), replace_machine(EC2_NODE)] if e2e.is_ec2 else []
    nodes = [NODE, EC2_NODE] if e2e.is_ec2 else [NODE]
    lines = [
        f"cd {shlex.quote(str(REPOSITORY))}",
        *([f"export PATH={shlex.quote(str(Path(node).parent))}:$PATH"] if (node := shutil.which("node")) else []),
        f"mkdir -p {folder} && printf %s {shlex.quote(e2e.document)} > {shlex.quote(str(e2e.policy))}",
        *map(shlex.join, [DOCTOR, e2e.note(), e2e.deploy(), DOCTOR]),
        f"# {', '.join(nodes)}: the ids of nodes whose agents have reported by now",
        *map(shlex.join, [e2e.prepare(), e2e.enroll(NODE), DOCTOR, inject(NODE)]),
        "# wait until `nodeheal incidents list` says RECOVERED",
        *map(shlex.join, ec2),
        *(["# wait again; the instance that was launched is to be retired as well"] if ec2 else []),
        *map(shlex.join, [*e2e.tear_down(nodes), leftovers("list")]),
        f"rm -r {folder}",
    ]
    return "\n".join(lines)


def confirm(account: str, region: str, ask: Ask) -> None:
    """Only who types both means them. Raises E2eFailed."""
    wanted = f"{account} {region}"
    typed = ask(f"This deploys nodeheal, reboots one node and takes nodeheal away again. Type '{wanted}' to go on: ")
    if typed.strip() != wanted:
        raise E2eFailed("not confirmed: nothing was done")


def refuse_where_it_is_deployed(client: Any) -> None:
    """What somebody uses is not taken away at the end. Raises E2eFailed."""
    known = {
        stack["StackName"] for page in client.get_paginator("describe_stacks").paginate() for stack in page["Stacks"]
    }
    if names.STACK in known:
        raise E2eFailed("nodeheal is deployed here: this would take it away. Use an account or a Region without it")


def play(e2e: E2e, ask: Ask) -> None:
    """Deploy, drill, watch; take away what was made, whatever happened. Raises E2eFailed."""
    run(DOCTOR, must=False)
    run(e2e.note())
    nodes: list[str] = []
    try:
        run(e2e.deploy())
        run(DOCTOR, must=False)
        _drill(e2e, ask, nodes)
        if e2e.is_ec2:
            _replace_a_machine(e2e, ask, nodes)
        run(nodeheal("incidents", "list", "--pool", e2e.pool, "--since", "1d"))
    finally:
        _take_away(e2e, nodes, sys.exception())


def _take_away(e2e: E2e, nodes: Sequence[str], failure: BaseException | None) -> None:
    """Raises E2eFailed where something stays, and names the failure of the run as well."""
    why = f"{failure}; " if isinstance(failure, E2eFailed) else ""
    try:
        launched = [node for node in nodes_of(e2e.pool) if node not in nodes]
        failed = [command for command in e2e.tear_down([*nodes, *launched]) if not run(command, must=False)]
        run(leftovers("list"), must=False)
    except KeyboardInterrupt:
        raise E2eFailed(f"{why}the removal was broken off: {NOT_TAKEN_AWAY}") from failure
    if failed:
        raise E2eFailed(f"{why}{shlex.join(failed[0])} failed: {NOT_TAKEN_AWAY}") from failure


def _drill(e2e: E2e, ask: Ask, nodes: list[str]) -> None:
    """Step 5: a node reports a fault, and recovers by a reboot."""
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
    """Step 7: an EC2 instance is terminated, and one launched from its template takes its place."""
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
    nodes.remove(node)  # it is terminated: nothing of it has a tag


def _recover(e2e: E2e, begin: list[str], what: str) -> None:
    """Begins an incident, and waits until it has ended well. Earlier ones of the pool do not count."""
    before = endings(e2e.pool)
    run(begin)
    wait(lambda: has_recovered(endings(e2e.pool), before), DRILL_SECONDS, e2e.look_every, what)


def _node(ask: Ask, question: str) -> str:
    typed = ask(question).strip()
    if not re.match(NODE_ID_PATTERN, typed):
        raise E2eFailed(f"{typed!r} is no id of a node")
    return typed


def nodes_of(pool: str) -> list[str]:
    """The nodes of the pool that nodeheal may act on; none where it cannot be asked."""
    listed = subprocess.run(nodeheal("nodes", "list", pool, "--json"), capture_output=True, check=False)
    rows = json.loads(listed.stdout or b"[]") if listed.returncode == 0 else []
    return [row["node"] for row in rows if row["state"] != "RETIRED"]


def is_heard(node: str) -> bool:
    """Whether its agent has reported."""
    return subprocess.run(nodeheal("nodes", "show", node), capture_output=True, check=False).returncode == 0


def endings(pool: str) -> dict[str, str | None]:
    """How each incident of the pool has ended; None: it is open."""
    listed = subprocess.run(
        nodeheal("incidents", "list", "--pool", pool, "--since", "1d", "--json"), capture_output=True, check=False
    )
    return {one["incident"]: one["ending"] for one in json.loads(listed.stdout or b"[]")}


def has_recovered(found: dict[str, str | None], before: dict[str, str | None]) -> bool:
    """Whether an incident that is new has ended well. Raises E2eFailed where one has ended otherwise."""
    new = {ending for incident, ending in found.items() if incident not in before and ending}
    if new - {"RECOVERED"}:
        raise E2eFailed(f"the incident ended {', '.join(sorted(new))}: `nodeheal incidents show` says why")
    return bool(new)


def run(command: list[str], *, must: bool = True) -> bool:
    """Run it where everybody can see it; whether it succeeded. Raises E2eFailed where it fails and must not."""
    say(f"$ {shlex.join(command)}")
    done = subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0 and must:
        raise E2eFailed(f"it ended with {done.returncode}: {' '.join(command[:3])}")
    return done.returncode == 0


def wait(is_so: Callable[[], bool], seconds: float, every: float, what: str) -> None:
    """Until it is so. Raises E2eFailed."""
    say(f"waiting until {what}, {seconds / 60:.0f} minutes at most")
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise E2eFailed(f"it is not so that {what}")
        time.sleep(every)


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None, ask: Ask = input) -> int:
    """0: the node was healed. 1: it was not, or nothing was done. 130: it was broken off by Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make e2e", description=__doc__)
    parser.add_argument("--cluster", help="the ECS cluster of the node; without it, that of cdk.json")
    parser.add_argument("--pool", default="e2e", type=_pool, help="the pool that the node's agent.toml names")
    parser.add_argument("--email", action="append", type=_email, help="who is told, instead of those of cdk.json")
    parser.add_argument(
        "--context", action="append", default=[], type=_context, metavar="KEY=VALUE", help="for the CDK"
    )
    parser.add_argument("--ec2", action="store_true", help="also replace an EC2 instance that you launch; it costs")
    parser.add_argument("--keep-data", action="store_true", help="keep the table, the bucket and the policy at the end")
    parser.add_argument("--look-every", type=float, default=LOOK_EVERY_SECONDS, help="seconds between two looks")
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="seconds until all go by the new policy")
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
    """The run, and what becomes of its directory: it stays after a failure."""
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
    """The context of an app that is given this flag, for `load_settings`."""

    def __init__(self, flag: dict[str, object]) -> None:
        self._flag = flag

    def try_get_context(self, key: str) -> str | None:
        """As a construct's node answers."""
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
        raise argparse.ArgumentTypeError(f"{text!r}: settings of nodeheal belong into cdk.json")
    if key == STAGE_KEY and value not in list(Stage):
        raise argparse.ArgumentTypeError(f"{text!r}: the stage is one of {', '.join(Stage)}")
    return text


def _play_where_it_may(e2e: E2e, ask: Ask) -> None:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    region = os.environ.get("AWS_REGION") or boto3.Session().region_name
    if not region:
        raise E2eFailed("which Region? Set AWS_REGION")
    # Every command of the run goes there: the CDK's CLI and `nodeheal` read it.
    os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
    try:
        refuse_where_it_is_deployed(boto3.client("cloudformation", region_name=region))
        account = boto3.client("sts", region_name=region).get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise E2eFailed(f"AWS cannot be asked, so nothing was done: {error}") from error
    confirm(account, region, ask)
    play(e2e, ask)


if __name__ == "__main__":
    sys.exit(main())
