"""What Linux keeps a process from, asked from within; each time in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from mha_lint.runner import linux

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")

ROOT = Path(__file__).resolve().parents[2]


def told(code: str, *arguments: object) -> Any:
    """Run `code` in a new process and return what it prints as JSON."""
    source = "import errno, json, os, signal, socket, sys\nfrom mha_lint.runner import linux\n"
    done = subprocess.run(
        [sys.executable, "-c", source + textwrap.dedent(code), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NAMESPACES = told("""
    if os.fork() == 0:
        os._exit(not linux.own_processes())
    print(json.dumps(os.waitstatus_to_exitcode(os.wait()[1]) == 0))
""")
in_namespace = pytest.mark.skipif(not NAMESPACES, reason="no namespaces of processes here")


def test_the_tree_of_processes_is_read() -> None:
    child = subprocess.Popen(["sleep", "30"])
    try:
        found = linux.parents()
        assert found[child.pid] == os.getpid()
        assert found[os.getpid()] == os.getppid()
        assert child.pid in linux.descendants(os.getppid(), found)
    finally:
        linux.kill({child.pid})
        assert child.wait() == -signal.SIGKILL


def test_the_dead_are_no_processes() -> None:
    child = subprocess.Popen(["true"])
    for _ in range(100):
        if Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
            break
        time.sleep(0.02)
    assert child.pid not in linux.parents()
    child.wait()


def test_descendants_are_all_below_and_none_beside() -> None:
    found = {2: 1, 3: 2, 4: 3, 5: 1, 6: 6, 7: 4}
    assert linux.descendants(2, found) == {3, 4, 7}
    assert linux.descendants(9, found) == set()
    assert linux.descendants(6, found) == {6}


def test_tasks_are_counted() -> None:
    assert linux.tasks() >= 1


def test_a_signal_to_what_has_gone_is_no_error() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    linux.kill([child.pid])


def test_sockets_are_local_only_and_the_spared_are_spared() -> None:
    child = subprocess.Popen(["sleep", "30"])
    other = subprocess.Popen(["sleep", "30"])
    try:
        found = told(
            """
            spared, other = map(int, sys.argv[1:])
            worked = linux.without_network([spared])
            def ends(call, *arguments):
                try:
                    call(*arguments)
                except OSError as error:
                    return errno.errorcode[error.errno]
                return "fine"
            print(json.dumps([
                worked,
                ends(socket.socket, socket.AF_INET), ends(socket.socket, socket.AF_INET6),
                ends(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW),
                ends(socket.socket, socket.AF_UNIX),
                ends(os.kill, -1, 0), ends(os.kill, spared, 9), ends(os.kill, -spared, 9),
                ends(os.kill, other, 9), ends(os.kill, os.getpid(), 0),
            ]))
            """,
            child.pid,
            other.pid,
        )
        refused = ["EACCES", "EACCES", "EACCES", "fine", "EPERM", "EPERM", "EPERM", "fine", "fine"]
        assert found == [True, *refused]
        assert child.poll() is None
        assert other.wait() == -signal.SIGKILL
    finally:
        linux.kill([child.pid, other.pid])
        child.wait()


def test_a_child_is_refused_as_well() -> None:
    assert (
        told("""
        linux.without_network()
        if os.fork() == 0:
            try:
                socket.socket(socket.AF_INET)
            except PermissionError:
                os._exit(7)
            os._exit(0)
        print(json.dumps(os.waitstatus_to_exitcode(os.wait()[1])))
    """)
        == 7
    )


def test_only_powers_over_files_are_kept() -> None:
    before, after = told("""
        def powers():
            lines = open("/proc/self/status").read().splitlines()
            return [int(x.split()[1], 16) for x in lines if x.startswith(("CapPrm", "CapEff"))]
        before = powers()
        assert linux.without_powers()
        print(json.dumps([before, powers()]))
    """)
    files = 0b1101_1111
    assert after == [value & files for value in before]


@in_namespace
def test_a_child_apart_sees_itself_only_and_its_parent_forks_on() -> None:
    seen, first, second, plain = told("""
        assert linux.own_processes()
        inner = os.fork()
        if inner == 0:
            linux.own_proc()
            apart, told = linux.Apart(), []
            for number in range(2):
                left, right = os.pipe()
                process, own = apart.fork()
                if process == 0:
                    linux.own_mounts() and linux.own_proc()
                    names = sorted(filter(str.isdigit, os.listdir("/proc")))
                    os.write(right, json.dumps([names, os.getpid()]).encode())
                    os._exit(own)
                os.waitpid(process, 0)
                told.append(json.loads(os.read(left, 1000)))
            process = os.fork()
            if process == 0:
                os._exit(os.getpid() == 1)
            _, status = os.waitpid(process, 0)
            print(json.dumps([told[0][0], told[0][1], told[1][1], status]), flush=True)
            os._exit(0)
        os.wait()
    """)
    assert (seen, first, second, plain) == (["1"], 1, 1, 0)


@in_namespace
def test_all_that_a_child_apart_started_ends_with_it() -> None:
    mark = f"mha-lint-{os.getpid()}"
    code = """
        assert linux.own_processes()
        if os.fork() == 0:
            linux.own_proc()
            process, own = linux.Apart().fork()
            if process == 0:
                for _ in range(5):
                    if os.fork() == 0:
                        os.setsid()
                        os.execvp("sleep", ["sleep", "31", sys.argv[1]][:2])
                os._exit(0)
            os.waitpid(process, 0)
            left = [p for p, parent in linux.parents().items() if p != os.getpid()]
            print(json.dumps([own, left]), flush=True)
            os._exit(0)
        os.wait()
    """
    assert told(code, mark) == [True, []]
