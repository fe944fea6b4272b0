"""What `doctor` tries, each the way that the agent would do it. What fails raises ConfigError or OSError."""

import errno
import http.client
import os
import tempfile
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from nodeheal.agent.aws_client import endpoint
from nodeheal.agent.bus import BusUnavailable
from nodeheal.agent.checks.check import Place
from nodeheal.agent.checks.journal import TOOL as JOURNAL_TOOL
from nodeheal.agent.checks.memory import parse_used_percent
from nodeheal.agent.checks.tools import is_installed
from nodeheal.agent.clock import Clock
from nodeheal.agent.compose import event_bus, heartbeat_item, signer_of
from nodeheal.agent.config import AgentConfig, KernelLog
from nodeheal.agent.connect import node_metrics
from nodeheal.agent.event import Entry
from nodeheal.agent.heartbeat_client import Heartbeat, HeartbeatRejected
from nodeheal.agent.metrics import NotPut
from nodeheal.contract.names import AGENT_DOCTOR

ANSWER_SECONDS = 8.0
HINT = "; see 'Let it speak' in docs/agent.md"


def opens(log: KernelLog) -> str:
    """A kernel log can be read."""
    if log.kind == "journald":
        if not is_installed(JOURNAL_TOOL):
            raise FileNotFoundError(errno.ENOENT, "not installed", JOURNAL_TOOL)
        return log.path or "of this machine"
    with Path(log.path).open("rb"):
        return log.path


def writes(folder: Path) -> str:
    """A folder can be written. One that is not there is not made: root would make one that is not the agent's."""
    if not folder.exists():
        there = next(parent for parent in folder.parents if parent.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{there} cannot be written", str(folder))
        return f"{folder} is not there yet: it is made at the agent's first start"
    with tempfile.NamedTemporaryFile(dir=folder):
        return str(folder)


def runs_scripts(folder: Path) -> str:
    """Scripts can be run below a folder: the SSM agent runs each command from a file there."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise PermissionError(errno.EACCES, "mounted noexec: every SSM command ends with exit code 126", str(folder))
    return f"scripts run in {folder}; the SSM agent works on five commands at once, and holds five more"


def speaks(config: AgentConfig) -> str:
    """The bus takes an event, one that nobody listens to: PutEvents has no dry run. A millionth of a dollar."""
    clock = Clock()
    bus = event_bus(config, clock)
    try:
        receipt = bus.put([Entry("doctor", AGENT_DOCTOR, "{}", clock.utc_now().timestamp())])
    except BusUnavailable as error:
        raise _failed(str(error), error.is_refusal) from error
    finally:
        bus.close()
    if receipt.hopeless or receipt.later:
        raise _failed("; ".join(why for _, why in (*receipt.hopeless, *receipt.later)), receipt.is_refusal)
    return "takes events of this node"


def takes_heartbeat(config: AgentConfig) -> str:
    """The table takes a heartbeat: a true one. A second one says the interval that the control plane wants, if it
    wants another one than the configuration has: by what stands there it judges the node's silence.
    """
    clock, every = Clock(), config.heartbeat_seconds
    item, key = heartbeat_item(config, clock), signer_of(config, clock).public()
    heartbeat = partial(Heartbeat, config.boot_id(), clock.utc_now().timestamp(), key=key)
    try:
        wanted = item.write(heartbeat(every))
        if wanted is not None and wanted != every:
            item.write(heartbeat(wanted))
    except HeartbeatRejected as error:
        raise _failed(str(error), error.is_refusal) from error
    finally:
        item.close()
    return f"taken, every {wanted or every:g} s"


def measures(place: Place) -> str:
    """CloudWatch takes a number: a true one, such as the agent sends each minute."""
    used = parse_used_percent((place.proc / "meminfo").read_text("ascii", "replace"))
    if used is None:
        raise OSError("/proc/meminfo is not understood")
    clock = Clock()
    metrics = node_metrics(place.config, clock)
    try:
        metrics.put({"memory_used_percent": used}, clock.utc_now())
    except NotPut as error:
        raise OSError(str(error)) from error
    finally:
        metrics.close()
    return f"takes this node's numbers: {used:.0f} % of the memory is in use"


def reaches_sns(config: AgentConfig) -> str:
    """SNS answers. What is published to the topic is taken for a fault, so that is not tried."""
    url = urlsplit(endpoint("sns", config.region))
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/")
        connection.getresponse().read(1)
    except OSError as error:
        raise OSError(f"{url.netloc}: {str(error) or type(error).__name__}") from error
    except http.client.HTTPException as error:
        raise OSError(f"{url.netloc}: {type(error).__name__}") from error
    finally:
        connection.close()
    return f"{url.netloc} answers; whether it lets this node publish is not tried: it would page"


def _failed(why: str, is_refusal: bool) -> OSError:
    return OSError(why + HINT * is_refusal)
