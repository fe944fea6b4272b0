"""mpirun on the nodes of a gang, without SSH: node 0 runs mpirun, and the other nodes start what it asks of them.

nodeheal starts this on every node. They meet in a folder that all of them see, one for each run: each leaves its
address there, and mpirun's remote agent (this file again, with --reach) leaves the command for a node as a file.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

MEET_SECONDS = 600.0  # how long nodes may take to find one another: their images are pulled at different speeds
LOOK_SECONDS = 0.2


def main(arguments: list[str]) -> int:
    """Run the command with mpirun (node 0), or what mpirun wants run here (the others)."""
    if arguments[:1] == ["--reach"]:
        return reach(arguments[1], arguments[2:])
    folder = meeting()
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"node-{int(os.environ['NODE_RANK']):04d}", own_address())
    if os.environ["NODE_RANK"] == "0":
        return run_all(folder, arguments)
    return serve(folder / f"for-{own_address()}")


def run_all(folder: Path, command: list[str]) -> int:
    """mpirun over all nodes, which reaches them by way of the folder."""
    count = int(os.environ["NNODES"])
    names = [wait_for(folder / f"node-{rank:04d}") for rank in range(count)]
    slots = int(os.environ["NPROC_PER_NODE"])
    hosts = ",".join(f"{name}:{slots}" for name in names)
    agent = shlex.join([sys.executable, str(Path(__file__).resolve()), "--reach"])
    # Open MPI 4 and 5 each read their own.
    settings = {"OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent}
    settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    passed = [word for name in os.environ if name.startswith("NODEHEAL_") for word in ("-x", name)]
    started = ["mpirun", "--np", str(count * slots), "--host", hosts, "--map-by", f"ppr:{slots}:node", *passed]
    process = subprocess.Popen([*started, *command], env={**os.environ, **settings})
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())  # mpirun passes it on to every rank
    return process.wait()


def serve(order: Path) -> int:
    """Wait for mpirun's command for this node, and run it until it ends."""
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # node 0 hears it too, and ends all ranks in good order
    command = wait_for(order)
    code = subprocess.run(["/bin/sh", "-c", command], check=False).returncode
    write(order.with_suffix(order.suffix + ".code"), str(code))
    return code


def reach(host: str, command: list[str]) -> int:
    """What mpirun takes for ssh: hand the command to the node, and stay until it has ended there."""
    order = meeting() / f"for-{host}"
    write(order, " ".join(command))  # quoted for a shell already, as for ssh
    return int(wait_for(order.with_suffix(order.suffix + ".code"), seconds=None))


def meeting() -> Path:
    """The folder of this run: numbers of runs only grow, so nothing of an earlier one is there."""
    return Path(os.environ["MPI_MEETING"]) / os.environ["NODEHEAL_JOB"] / os.environ["NODEHEAL_RUN"]


def own_address() -> str:
    """Where the other nodes reach this one: by the route to node 0."""
    if address := os.environ.get("OWN_ADDRESS"):
        return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 9))  # nothing is sent
        return str(probe.getsockname()[0])


def write(file: Path, text: str) -> None:
    """As a whole, or not at all."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


def wait_for(file: Path, seconds: float | None = MEET_SECONDS) -> str:
    """What stands in the file, once it is there. Without `seconds`, as long as it takes."""
    until = time.monotonic() + seconds if seconds is not None else None
    while True:
        try:
            return file.read_text("utf-8")
        except FileNotFoundError:
            if until is not None and time.monotonic() > until:
                raise TimeoutError(f"{file} did not come within {seconds:g} s; do all nodes see it?") from None
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
