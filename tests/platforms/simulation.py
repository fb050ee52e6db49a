"""Makes a process of Linux lack what macOS or Windows lack.

The names are those that the Python documentation marks as not available there (lines "Availability"
of the pages of ``os``, ``signal``, ``socket`` and ``time``). All other libraries must be imported
before, because they choose their code for Linux at import.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import psutil

_ROOTS: Final = ("/proc", "/sys")
_LINUX_MODULES: Final = ("nis", "ossaudiodev", "spwd")
_POSIX_MODULES: Final = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
_LINUX_NAMES: Final = {
    os: (
        "copy_file_range eventfd getxattr listxattr memfd_create pidfd_open pipe2 posix_fadvise "
        "sched_getaffinity sched_setaffinity sched_getscheduler setns splice unshare waitid "
        "O_DIRECT O_TMPFILE"
    ),
    signal: "sigtimedwait sigwaitinfo pidfd_send_signal SIGPWR SIGSTKFLT SIGRTMIN SIGRTMAX",
    time: "pthread_getcpuclockid CLOCK_BOOTTIME",
    socket: "AF_NETLINK AF_VSOCK",
}
_POSIX_NAMES: Final = {
    os: (
        "chown chroot fchmod fchown fdatasync fork forkpty getegid geteuid getgid getgroups "
        "getloadavg getpgid getpgrp getpriority getsid getuid initgroups killpg lchown mkfifo "
        "mknod nice openpty posix_spawn posix_spawnp pread preadv pwrite pwritev readv "
        "register_at_fork setegid seteuid setgid setpgid setpriority setsid setuid statvfs sync "
        "sysconf tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 writev "
        "O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC P_ALL P_PID POSIX_SPAWN_DUP2 "
        "RTLD_GLOBAL RTLD_LAZY RTLD_LOCAL RTLD_NOLOAD RTLD_NOW WEXITED WNOHANG WNOWAIT"
    ),
    signal: (
        "alarm getitimer setitimer pause pthread_kill pthread_sigmask sigpending sigwait "
        "siginterrupt SIG_BLOCK SIG_SETMASK SIG_UNBLOCK SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP "
        "SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 "
        "SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ"
    ),
    time: "clock_getres clock_gettime clock_gettime_ns clock_settime tzset CLOCK_REALTIME",
    socket: "AF_UNIX",
}
# Each is missing on Windows, and also on macOS if it is in the first table.
_MISSING: Final = {"darwin": (_LINUX_NAMES,), "win32": (_LINUX_NAMES, _POSIX_NAMES)}


def simulate(platform: str, folder: Path) -> None:
    """Make this process lack what a platform lacks, for the rest of its life.

    Args:
        platform: ``darwin`` or ``win32``, as in ``sys.platform``.
        folder: gets a link to ``/proc`` for psutil alone, which reads from the kernel elsewhere.
    """
    link = folder / "proc of psutil"
    link.symlink_to("/proc")
    psutil.PROCFS_PATH = str(link)
    # They chose their code for Linux at import, which looks names up at each call.
    for library in (subprocess, psutil, psutil._pslinux, psutil._psposix):
        vars(library).update(os=_copy(os), signal=_copy(signal))
    vars(tempfile)["_os"] = _copy(os)
    for table in _MISSING[platform]:
        for module, names in table.items():
            for name in names.split():
                if hasattr(module, name):
                    delattr(module, name)
    modules = (*_LINUX_MODULES, *(_POSIX_MODULES if platform == "win32" else ()))
    sys.modules.update(dict.fromkeys(modules))  # type: ignore[arg-type]
    sys.platform = platform
    _hide_linux_files()


def _copy(module: ModuleType) -> SimpleNamespace:
    return SimpleNamespace(**vars(module))


def _hide_linux_files() -> None:
    """Make all files below ``/proc`` and ``/sys`` missing."""

    def check(path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(_ROOTS):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir"):
            check(arguments[0])

    def checked(function: Any) -> Any:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            check(path)
            return function(path, *arguments, **options)

        return call

    sys.addaudithook(audit)
    for name in ("stat", "lstat", "access", "readlink"):  # without audit events
        setattr(os, name, checked(getattr(os, name)))
