"""A Slurm whose controller has a backup, on one machine.

Slurm has one port for all of its controllers, and slurmctld takes it on every address of its machine, or on that of the
machine's own name. So each of the two has a port of its own, and what stands between them and the rest is a network of
the test: it carries an address of each to its port, until that machine is gone.
"""

import contextlib
import re
import selectors
import socket
import socketserver
import threading
import time
from pathlib import Path

from sandbox.slurm import free_ports
from tests.slurm.cluster import Slurm

# Long enough that a primary controller on a busy machine is not given up.
SETTINGS = "SlurmctldTimeout=8\nCommunicationParameters=NoCtldInAddrAny\n"
ADDRESSES = ("127.79.0.1", "127.79.0.2")
_BYTES = 65_536


class TwoControllers(Slurm):
    """Its clients and nodes know both."""

    def __init__(self, folder: Path, size: int) -> None:
        super().__init__(folder, size)
        text = self.cluster.configuration.read_text("utf-8") + SETTINGS
        port = int(re.findall(r"SlurmctldPort=(\d+)", text)[0])
        [other] = free_ports(1)
        self._ports = (port, other)
        self._text = text.replace("SlurmctldHost=localhost(127.0.0.1)\n", "")
        self.cluster.configuration.write_text(self._seen_by(None), "utf-8")
        self._links: list[list[_Link]] = [[], []]

    def start_controller(self) -> None:
        """The primary one, then the backup: one that finds the cluster's name half written in their folder ends."""
        for number, (name, is_up) in enumerate((("primary", self.answers), ("backup", self.has_backup))):
            # Each may be asked at either port: a controller takes its own port for the other's as well.
            self._links[number] = [_Link((ADDRESSES[number], port), self._ports[number]) for port in self._ports]
            configuration = self.folder / f"{name}.conf"
            configuration.write_text(self._seen_by(number), "utf-8")
            self.begin(name, [*self.cluster.controller()[:-1], str(configuration)])
            self.wait(is_up, f"the {name} controller answers")

    def answers(self) -> bool:
        """Whether one of the two is in charge, and answers."""
        return self.attempt("sinfo").returncode == 0

    def has_backup(self) -> bool:
        """Whether the backup waits for the primary one to fail."""
        return "Slurmctld(backup) at head2 is UP" in self.attempt("scontrol", "ping").stdout

    def wait_until_saved(self, job: str) -> None:
        """Until the backup could know of the job what the primary controller knows. It may take five seconds."""
        state, now = self.cluster.folder / "state" / "job_state", time.time()
        self.ask("scontrol", "update", f"JobId={job}", "Comment=to be saved")
        self.wait(lambda: state.exists() and state.stat().st_mtime > now, "the job's state is saved")

    def lose_primary(self) -> None:
        """Its machine is gone."""
        for link in self._links[0]:
            link.close()
        self.kill("primary")

    def close(self) -> None:
        """End every process of the cluster, and its network."""
        super().close()
        for link in self._links[1]:
            link.close()

    def _seen_by(self, number: int | None) -> str:
        """The configuration. slurmctld knows itself in it by its machine's name, which both have here."""
        names = ["localhost" if each == number else f"head{each + 1}" for each in range(2)]
        hosts = [f"SlurmctldHost={name}({where})\n" for name, where in zip(names, ADDRESSES, strict=True)]
        port = self._ports[number or 0]
        own = self._text.replace(f"SlurmctldPort={self._ports[0]}", f"SlurmctldPort={port}")
        return "".join([*hosts, own.replace("/slurmctld.", f"/{port}.")])  # its log and its process id


class _Link(socketserver.ThreadingTCPServer):
    """Carries what comes to an address to a port of slurmctld."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], port: int) -> None:
        super().__init__(address, _Carrier)
        self.target = (socket.gethostbyname(socket.gethostname()), port)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Carrier(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Link)
        with (
            contextlib.suppress(OSError),
            socket.create_connection(self.server.target) as far,
            selectors.DefaultSelector() as ends,
        ):
            ends.register(self.request, selectors.EVENT_READ, far)
            ends.register(far, selectors.EVENT_READ, self.request)
            while ends.get_map():
                for key, _ in ends.select():
                    said = key.fileobj.recv(_BYTES)  # type: ignore[union-attr]
                    if said:
                        key.data.sendall(said)
                    else:
                        ends.unregister(key.fileobj)
                        key.data.shutdown(socket.SHUT_WR)
