"""A Debian system that boots: systemd in namespaces of its own, with a network that only it and this test see.

Needs root, `debootstrap`, and a kernel that gives a namespace its cgroups. The base system is made once, in target.
"""

import os
import shutil
import subprocess
from pathlib import Path

from . import jars, waits

SUITE = "bookworm"
MIRROR = os.environ.get("SHUNT_DEBIAN_MIRROR", "http://deb.debian.org/debian")

# What systemd expects of a container's manager. The last line becomes process 1 of the namespaces.
BOOT = r"""
set -eu
root=$1 group=$2
mount --make-rprivate /
if [ -z "${SHUNT_IN_GROUP:-}" ]; then
    # systemd arranges all groups below its own.
    mount -t cgroup2 cgroup2 "$root/mnt"
    mkdir -p "$root/mnt/$group"
    echo $$ >"$root/mnt/$group/cgroup.procs"
    umount "$root/mnt"
    SHUNT_IN_GROUP=1 exec unshare --cgroup bash -c "$0" "$0" "$root" "$group"
fi
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
ip link set lo up
mkdir -p "$root/old"
cd "$root"
pivot_root . old
umount -l /old
unset SHUNT_IN_GROUP
export container=shunt-test
exec /lib/systemd/systemd --log-target=journal --show-status=0 </dev/null
"""


def base() -> Path:
    """The system before anything of ours is installed."""
    made = jars.TARGET / "packaging" / SUITE
    if not made.is_dir():
        unfinished = made.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["debootstrap", "--variant=minbase", "--include=systemd,dbus", SUITE, str(unfinished), MIRROR],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        unfinished.rename(made)
    return made


class Booted:
    """One boot of a copy of the base system."""

    def __init__(self, directory: Path):
        self.root, self.log = directory / "root", directory / "boot.log"
        self.process = self.init = None
        self.group = f"shunt-test-{os.getpid()}"

    def __enter__(self) -> "Booted":
        subprocess.run(["cp", "-a", str(base()), str(self.root)], check=True)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--kill-child",
                                             "bash", "-c", BOOT, BOOT, str(self.root), self.group], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            waits.until(self._find_init, "systemd is process 1", told=self._log)
            waits.until(lambda: self.run("systemctl", "is-system-running", fails=None)[0] in ("running\n", "degraded\n"), "the system has booted",
                        every_seconds=0.5, told=self._log)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _find_init(self) -> bool:
        assert self.process.poll() is None, self._log()
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
            self.init = children[0]
        return self.init is not None

    def _log(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def inside(self, *command: str) -> list:
        """The command line that runs this within the system."""
        return ["nsenter", "--target", self.init, "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--net", "--root", "--wdns=/",
                "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *command]

    def run(self, *command: str, fails: bool | None = False) -> tuple:
        """(standard output, standard error) of a command in the system, which must succeed, fail, or (None) either."""
        done = subprocess.run(self.inside(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=waits.DEADLINE_SECONDS)
        assert fails is None or (done.returncode != 0) == fails, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout, done.stderr

    def put(self, source: Path, path: str) -> str:
        """Copies a file into the system; gives its path there."""
        shutil.copy(source, self.root / path.lstrip("/"))
        return path

    def __exit__(self, *_) -> None:
        # The first process of the namespaces, and with it all others.
        if self.init:
            subprocess.run(["kill", "-KILL", self.init])
        self.process.kill()
        self.process.wait(60)
        waits.until(self._remove_groups, "all processes have ended")

    def _remove_groups(self) -> bool:
        remove = 'mount -t cgroup2 cgroup2 /mnt && find "/mnt/$0" -depth -type d -exec rmdir {} +'
        return subprocess.run(["unshare", "--mount", "sh", "-c", remove, self.group], capture_output=True).returncode == 0
