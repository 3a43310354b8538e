"""What Linux offers to keep a process in, without privileges wherever it can be had without.

Each function tells whether it worked: none of these must be there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# <sched.h>
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x0002_0000, 0x1000_0000, 0x2000_0000
# <sys/mount.h>
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_PRIVATE = 1 << 14, 1 << 18
# <sys/prctl.h>
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER, _PR_SET_SECCOMP = 1, 38, 36, 22
_SECCOMP_MODE_FILTER = 2


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl(option: int, *arguments: int) -> bool:
    libc = _libc()
    if libc is None:
        return False
    padded = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    return int(libc.prctl(option, *padded)) == 0


def die_with_parent() -> bool:
    """Have the kernel kill this process when the one that started it ends."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> bool:
    """Become the parent of descendants whose own parent ends."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def go_first() -> bool:
    """Have this process, not its children, run before all others: it must keep up with what forks.

    It waits nearly all the time. Only the superuser may, whose forks are not limited either.
    """
    if sys.platform != "linux":
        return False
    try:
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def going_along() -> Iterator[None]:
    """Let the block, which takes long, run beside other processes again."""
    if sys.platform != "linux" or os.sched_getscheduler(0) == os.SCHED_OTHER:
        yield
        return
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        yield
    finally:
        go_first()


def tasks() -> int:
    """Return how many tasks the machine has; 0 where it does not say."""
    try:
        with open("/proc/loadavg", "rb") as handle:  # noqa: PTH123 - called all the time
            return int(handle.read().split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def own_processes() -> bool:
    """Let the children of this process live in a process namespace of their own, with its ``/proc``.

    The first child is its init: nothing inside can signal what is outside or kill that child, and
    with it everything inside ends. Tell whether there is one.
    """
    libc = _libc()
    if libc is None:
        return False
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWPID | CLONE_NEWNS
    if libc.unshare(flags) != 0:
        if user == 0 or libc.unshare(flags | CLONE_NEWUSER) != 0:
            return False
        if not _mapped(user, group):
            return False
    return int(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)) == 0


def own_proc() -> bool:
    """Show, as the first process of a namespace, its own processes in ``/proc``."""
    libc = _libc()
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    return libc is not None and libc.mount(b"proc", b"/proc", b"proc", flags, None) == 0


class Apart:
    """Lets each next child of this process be the first process of a namespace of its own.

    This process must itself be in one that `own_processes` made.
    """

    def __init__(self) -> None:
        """Remember the namespace that this process is in."""
        self._libc = _libc()
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def fork(self) -> tuple[int, bool]:
        """Fork; return what ``os.fork`` does, and whether the child has a namespace of its own."""
        assert self._libc is not None
        apart = int(self._libc.unshare(CLONE_NEWPID)) == 0
        parent = os.getpid()
        try:
            process = os.fork()
        finally:
            if apart and os.getpid() == parent:
                self._libc.setns(self._home, CLONE_NEWPID)
        return process, apart

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._home)


def own_mounts() -> bool:
    """Have mounts of this process's own, that only it and its children see."""
    libc = _libc()
    if libc is None or libc.unshare(CLONE_NEWNS) != 0:
        return False
    return int(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)) == 0


_KEPT_CAPABILITIES = sum(1 << number for number in range(8) if number != 5)
"""What root may do with files and users (<linux/capability.h>); 5 is to signal any process."""


def without_powers() -> bool:
    """Give up what the superuser may do beyond files: mounts, tracing, the clock, devices."""
    libc = _libc()
    if libc is None:
        return False
    header = struct.pack("<II", 0x2008_0522, 0)
    kept = _KEPT_CAPABILITIES
    data = ctypes.create_string_buffer(24)
    if libc.capget(header, data) != 0:
        return False
    effective, permitted, *_ = struct.unpack("<6I", data.raw)
    low = (effective & kept, permitted & kept, 0)
    return int(libc.capset(header, struct.pack("<6I", *low, 0, 0, 0))) == 0


def _mapped(user: int, group: int) -> bool:
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError:
        return False
    return True


# --- a filter of system calls --------------------------------------------------------------------

_CALLS: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000_003E,
        {"socket": 41, "kill": 62, "tkill": 200, "tgkill": 234, "io_uring_setup": 425,
         "rt_sigqueueinfo": 129, "pidfd_open": 434},
    ),
    "aarch64": (
        0xC000_00B7,
        {"socket": 198, "kill": 129, "tkill": 130, "tgkill": 131, "io_uring_setup": 425,
         "rt_sigqueueinfo": 138, "pidfd_open": 434},
    ),
}  # fmt: skip
"""AUDIT_ARCH of the machine (<linux/audit.h>) and the numbers of its system calls."""

_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO, _EACCES, _EPERM, _ENOSYS = 0x7FFF_0000, 0x0005_0000, 13, 1, 38
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
_AF_UNIX = 1
_EVERYTHING = 0xFFFF_FFFF
"""-1 as a process: all that may be signalled."""


def without_network(spared: Sequence[int] = ()) -> bool:
    """Refuse to this process and its children every socket but local ones, and signals to `spared`.

    `spared`: process numbers that must not be signalled; neither may all processes at once.
    """
    machine = _CALLS.get(platform.machine())
    if machine is None or sys.byteorder != "little":
        return False
    libc = _libc()
    if libc is None or not _prctl(_PR_SET_NO_NEW_PRIVS, 1):
        return False
    program = _filter(*machine, spared)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    held = Program(len(program) // 8, program)
    address = ctypes.c_void_p(ctypes.addressof(held))
    return int(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, address, 0, 0)) == 0


def _filter(architecture: int, calls: dict[str, int], spared: Sequence[int]) -> bytes:
    """Return the filter as classic BPF: (code, jump if true, jump if false, value) each."""
    refused = [_EVERYTHING, *(p & 0xFFFF_FFFF for one in spared for p in (one, -one))]
    out: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ALLOW),  # code for another architecture: not ours to judge
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_EQUAL, 0, 1, calls["io_uring_setup"]),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_JUMP_EQUAL, 0, 4, calls["socket"]),
        (_LOAD, 0, 0, _ARGUMENT),
        (_JUMP_EQUAL, 0, 1, _AF_UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | _EACCES),
    ]
    for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "pidfd_open"):
        block = [(_LOAD, 0, 0, _ARGUMENT)]
        for one in refused:
            block += [(_JUMP_EQUAL, 0, 1, one), (_RETURN, 0, 0, _ERRNO | _EPERM)]
        block.append((_RETURN, 0, 0, _ALLOW))
        out += [(_JUMP_EQUAL, 0, len(block), calls[name]), *block]
    out.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *one) for one in out)


# --- process trees -------------------------------------------------------------------------------


def parents() -> dict[int, int]:
    """Return the parent of every process that ``/proc`` shows; empty where there is no ``/proc``."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdigit():
                continue
            try:
                with open(f"/proc/{entry.name}/stat", "rb") as handle:  # noqa: PTH123 - in a hot loop
                    rest = handle.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if rest[0] not in (b"Z", b"X"):
                found[int(entry.name)] = int(rest[1])
    return found


def descendants(root: int, found: dict[int, int]) -> set[int]:
    """Return all processes below `root`, by the parents in `found`."""
    children: dict[int, list[int]] = {}
    for process, parent in found.items():
        children.setdefault(parent, []).append(process)
    out: set[int] = set()
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in out:
                out.add(child)
                todo.append(child)
    return out


def kill(processes: Sequence[int] | set[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to each of `processes` that is still there."""
    for one in processes:
        with contextlib.suppress(OSError):
            os.kill(one, number)
