"""The sandbox's one server process: `python -m sandbox.emulator --port P --dir DIR`.

It serves AWS on 127.0.0.1 with IAM enforced, and runs the simulated nodes. It ends with everything that it started when
its standard input closes, or on SIGTERM or SIGINT.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config

from sandbox import ministack_adapter
from sandbox.aws_emulator import Application, Receive, Send
from sandbox.cloud import Cloud, Control, end_everything

SECRET_VARIABLE = "NODEHEAL_SANDBOX_SECRET"
ID_VARIABLE = "NODEHEAL_SANDBOX_ID"
_OBJECTS_A_COLLECTION = 100_000
_TURN_SECONDS = 0.000_5  # switch interval of threads; Python's default is ten times that


def main(arguments: list[str] | None = None) -> int:
    """Serve until stopped."""
    options = _options(arguments)
    options.dir.mkdir(parents=True, exist_ok=True)
    _configure(options.dir.resolve(), options.port)
    asyncio.run(_serve(options.dir.resolve(), options.port, options.boot_seconds))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox.emulator", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--boot-seconds", type=float, default=3.0)
    return parser.parse_args(arguments)


def _configure(directory: Path, port: int) -> None:
    """Set the environment of functions and nodes, and redirect the emulator's output to a file."""
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    os.environ.update(
        {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "TMPDIR": str(temporary),
        }
    )
    for variable in ("PYTHONDONTWRITEBYTECODE", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        os.environ.pop(variable, None)
    logging.basicConfig(
        filename=directory / "emulator.log", level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.captureWarnings(True)
    warnings.simplefilter("ignore", ResourceWarning)


async def _serve(directory: Path, port: int, boot_seconds: float) -> None:
    sandbox_id = os.environ.get(ID_VARIABLE, f"sandbox-{os.getpid()}")
    emulator = ministack_adapter.emulator(directory, port)  # the choice of the emulator
    cloud = Cloud(emulator, directory, f"http://127.0.0.1:{port}", boot_seconds, sandbox_id)
    cloud.install()
    _answer_at_once()
    control = Control(cloud, os.environ.get(SECRET_VARIABLE, ""))
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.keep_alive_timeout = 75
    config.errorlog = logging.getLogger("hypercorn.error")
    stop = _stop_event()
    server = asyncio.create_task(serve(_with_control(emulator.application, control), config))
    # The emulator's own shutdown ends functions one after the other; killing all of them takes a moment.
    await asyncio.wait({server, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if server.done():
        server.result()  # it could not serve: report why
    await asyncio.to_thread(cloud.close)
    await asyncio.to_thread(end_everything, sandbox_id, os.getsid(0))
    logging.shutdown()
    os._exit(0)  # the interpreter would wait for the emulator's worker threads, some of which wait for callbacks


def _answer_at_once() -> None:
    """Give priority to the thread that answers requests, beside those of a hundred workflows. It must not wait for its
    turn, nor for the garbage collector to scan the modules loaded at the start, which stay.
    """
    sys.setswitchinterval(_TURN_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION, 20, 20)


def _stop_event() -> asyncio.Event:
    """Return an event that is set when standard input closes or on a signal to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def watch() -> None:
        while sys.stdin.buffer.read(1024):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, name="stdin", daemon=True).start()
    return stop


def _with_control(app: Application, control: Control) -> Application:
    """Return the emulator's application, with the sandbox's own paths in front."""

    async def both(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith((control.PREFIX, control.POD_PREFIX)):
            await app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        status, content = await asyncio.to_thread(control.answer, scope["path"], headers, body)
        described = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": described})
        await send({"type": "http.response.body", "body": content})

    return both


if __name__ == "__main__":
    sys.exit(main())
