"""Runs a script in a process of its own that has imported torch, and nothing of opsmith.

`import torch` takes 1.5 s of a core. run(["-c", code]) is subprocess.run([sys.executable, "-c", code]), except that the
process is forked from one that has imported torch; that one is started by the first call. The script has its own
arguments, directory, environment and import path. Not for statements about the start of Python or the import of torch.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

READ_AT_START = ("LD_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH_", "ATEN_", "CUDA_VISIBLE")
"""Variables that the linker, Python and torch read when they start: where one differs, the process is not forked."""

_server: tuple[int, subprocess.Popen[bytes], Path] | None = None
_initial = dict(os.environ)


def run(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What subprocess.run([sys.executable, *arguments], capture_output=True, text=True, stdin=DEVNULL) returns.

    `arguments` begin with -c CODE, -m MODULE or the path of a script."""
    environment = dict(os.environ if env is None else env)
    command = [sys.executable, *arguments]
    if not hasattr(os, "fork") or _differ_at_start(environment):
        return subprocess.run(
            command, env=environment, cwd=cwd, timeout=timeout, check=check, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    job = {"arguments": list(arguments), "environment": environment, "directory": os.fspath(cwd or Path.cwd())}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as empty:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(_address()))
            connection.settimeout(timeout)
            text = json.dumps(job).encode()
            socket.send_fds(connection, [len(text).to_bytes(8, "little")], [empty.fileno(), out.fileno(), err.fileno()])
            connection.sendall(text)
            try:
                answer = connection.recv(8)
            except TimeoutError:  # closing the connection ends the process
                raise subprocess.TimeoutExpired(command, timeout or 0.0) from None
        assert answer, "the process that others are forked from has ended"
        out.seek(0)
        err.seek(0)
        status = int.from_bytes(answer, "little", signed=True)
        done = subprocess.CompletedProcess(command, status, out.read().decode(), err.read().decode())
    if check:
        done.check_returncode()
    return done


def _differ_at_start(environment: Mapping[str, str]) -> bool:
    """Whether a process has to be started for this environment."""
    names = {name for name in (*environment, *_initial) if name.startswith(READ_AT_START)} - {"PYTHONPATH"}
    return any(environment.get(name) != _initial.get(name) for name in names)


def _address() -> Path:
    """Of the server of this process. A forked process starts its own."""
    global _server
    if _server is None or _server[0] != os.getpid():
        directory = tempfile.TemporaryDirectory(prefix="opsmith-tests-", ignore_cleanup_errors=True)
        address = Path(directory.name, "socket")
        without = {name: value for name, value in _initial.items() if name != "PYTHONPATH"}
        process = subprocess.Popen([sys.executable, __file__, str(address)], stdin=subprocess.PIPE, env=without,
                                   stdout=subprocess.PIPE)  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "the process that others are forked from did not start"
        _server = os.getpid(), process, address
        atexit.register(_stop, process, directory)
    return _server[2]


def _stop(process: subprocess.Popen[bytes], directory: tempfile.TemporaryDirectory[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(10)
    directory.cleanup()


# --- The process that others are forked from --------------------------------------------------------------------------


def _serve(address: str) -> dict[str, object]:
    """Forks a process for each connection; returns in that process, with what it has to run."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        ready = select.select([listening, woken, 0, *running.values()], [], [])[0]
        if 0 in ready:  # the tests have ended
            for child in running:
                os.kill(child, signal.SIGKILL)
            os._exit(0)
        for child, connection in running.items():
            if connection in ready:  # nobody waits for it any more
                os.kill(child, signal.SIGKILL)
        if woken in ready:
            os.read(woken, 4096)
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                with contextlib.suppress(OSError), running.pop(child) as connection:
                    connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "little", signed=True))
        if listening not in ready:
            continue
        connection = listening.accept()[0]
        size, files, _, _ = socket.recv_fds(connection, 8, 3)
        job = json.loads(_received(connection, int.from_bytes(size, "little")))
        if child := os.fork():
            running[child] = connection
            for file in files:
                os.close(file)
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        for each in (listening, connection, *running.values()):
            each.close()
        os.close(woken)
        os.close(wakes)
        return job


def _received(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        parts += connection.recv(size - len(parts))
    return parts


def _become(job: dict[str, object]) -> None:
    """Runs what Python would run for these arguments, as the module __main__."""
    arguments, environment = job["arguments"], job["environment"]
    assert isinstance(arguments, list) and isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(job["directory"]))
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    kind, *rest = arguments
    first = {"-c": "", "-m": os.getcwd()}.get(kind, os.path.dirname(os.path.abspath(kind)))
    given = [os.path.abspath(each) for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:1] = [first, *given]
    importlib.invalidate_caches()
    sys.orig_argv = [sys.executable, *arguments]
    if kind == "-c":
        text, *rest = rest
        sys.argv = ["-c", *rest]
        code = compile(text, "<string>", "exec")
    elif kind == "-m":
        name, *rest = rest
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        assert spec is not None and spec.origin is not None, f"No module named {name}"
        sys.argv = [spec.origin, *rest]
        main.__spec__, main.__package__, main.__file__, main.__loader__ = spec, spec.parent, spec.origin, spec.loader
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    else:
        sys.argv = [kind, *rest]
        main.__file__ = os.path.abspath(kind)
        code = compile(Path(kind).read_bytes(), kind, "exec")
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


if __name__ == "__main__":
    gc.disable()
    import torch  # noqa: F401

    gc.freeze()  # a process that collects torch's objects at its end would copy the memory that they are in
    gc.enable()
    _become(_serve(sys.argv[1]))
