"""Report B21: shared memory that fills behind the store's back costs room, never a process."""
import os
import subprocess

import _b
import _field
from _b import note, step, wait_for
from _field import Skip, expect

STORE, FILL, OBJECT = 900_000_000, 300_000_000, 50_000_000


def own_shm(before=":"):
    """Words before a start command: it gets a /dev/shm of 1 GiB of its own, where `before` is run first."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        raise Skip("no right to make a mount namespace")
    return ["unshare", "-m", "sh", "-ec", f'mount -t tmpfs -o size=1g tmpfs /dev/shm; {before}; exec "$@"', "sh"]


def filled_by_another(f):
    wrap = own_shm()
    f.start_head()
    node = f.start_node(num_cpus=2, resources={"n": 1}, store=STORE, wrap=wrap)
    raylet = node.raylet
    shm = f"/proc/{raylet}/root/dev/shm"
    ray = _b.connect(f)
    import numpy as np

    @ray.remote(num_cpus=0, resources={"n": 0.1}, max_restarts=0)
    class Putter:
        def __init__(self):
            self.refs = []

        def put(self, i):
            """True when put, False when the store said that it is full."""
            try:
                self.refs.append(ray.put(np.full(OBJECT, i, dtype=np.uint8)))
                return True
            except ray.exceptions.ObjectStoreFullError:
                return False

        def wrong(self):
            return [i for i, r in enumerate(self.refs) if not (ray.get(r) == i).all()]

        def segment(self, n):
            """A segment of n bytes, as NCCL makes them."""
            fd = os.open("/dev/shm/field-b21", os.O_CREAT | os.O_RDWR)
            try:
                os.posix_fallocate(fd, 0, n)
            finally:
                os.close(fd)
                os.unlink("/dev/shm/field-b21")

        def pid(self):
            return os.getpid()

    a = Putter.remote()
    pid = ray.get(a.pid.remote(), timeout=60)
    with step("300 MB of /dev/shm are taken by another"):
        size = os.statvfs(shm)
        expect(size.f_blocks * size.f_frsize == 1 << 30, f"the node's /dev/shm has {size.f_blocks * size.f_frsize} bytes")
        fd = os.open(f"{shm}/other", os.O_CREAT | os.O_RDWR)
        os.posix_fallocate(fd, 0, FILL)
        os.close(fd)
    with step("objects of 50 MB, 1.5 times the store, are put or refused with ObjectStoreFullError"):
        said = [ray.get(a.put.remote(i), timeout=120) for i in range(27)]
        expect(any(said), "none was put")
        note(f"{sum(said)} of {len(said)} were put")
    with step("every object has its bytes"):
        wrong = ray.get(a.wrong.remote(), timeout=300)
        expect(wrong == [], f"wrong: {wrong}")
    with step("a rank's segment of 32 MiB fits beside the full store"):
        ray.get(a.segment.remote(32 << 20), timeout=60)
    with step("nothing died by a signal"):
        expect(ray.get(a.pid.remote(), timeout=60) == pid, "the actor has another process")
        expect(_field.start_time(raylet), "the daemon is gone")
        found = [x for x in _b.core_logs(f).splitlines() if "SIGBUS" in x or "signal 7" in x]
        expect(not found, found[:3])


def warned_at_start(f):
    wrap = own_shm(f"fallocate -l {FILL} /dev/shm/other")
    f.start_head()
    f.start_node(num_cpus=1, store=STORE, options=("--plasma-directory=/dev/shm",), wrap=wrap)
    lines = wait_for(lambda: [x for x in f.daemon_log().splitlines() if "/dev/shm" in x and "900000000" in x], 10,
                     "a warning that names /dev/shm and the size of the store")
    note(lines[0])


if __name__ == "__main__":
    _field.run(filled_by_another, warned_at_start)
