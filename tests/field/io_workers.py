"""Spilling to storage that is not the node's file system, by Ray's IO workers (object_spilling_config of other types)."""
import json
import os
import signal

import _b
import _field
from _b import note, step, wait_for
from _field import Skip, expect

SIZE, STORE = 10_000_000, 200_000_000


def storage(f, kind):
    """A folder that stands for a bucket, and the config of the storage."""
    folder = os.path.join(f.temp_dir, "bucket")
    os.makedirs(folder)
    params = {"uri": f"file://{folder}"} if kind == "smart_open" else {"directory_path": folder}
    return folder, json.dumps({"type": kind, "params": params})


def files(folder):
    return [os.path.join(d, n) for d, _, names in os.walk(folder) for n in names]


def io_workers(node, kind="IO"):
    """IO workers of a node, by what they are for: Spill, Restore or both."""
    names = ("Spill", "Restore") if kind == "IO" else (kind,)
    return [p for p in node.of("worker") if any(n in p.cmdline.split("/")[0] for n in names)]


def remotes(ray):
    import numpy as np

    @ray.remote(num_cpus=1, resources={"a": 0.01})
    def make(i):
        return np.full(SIZE, i % 251, dtype=np.uint8)

    @ray.remote(num_cpus=1, max_retries=0)
    def read(i, data):
        return i, len(data), int(data[0]), int(data[-1])

    return make, read


def right(values, n):
    wrong = [v for v in values if v[1:] != (SIZE, v[0] % 251, v[0] % 251)]
    expect(not wrong and len(values) == n, f"{len(values)} of {n} values, wrong: {wrong[:5]}")


def whole_way(f, kind):
    folder, spilling = storage(f, kind)
    f.start_head(config={"object_spilling_config": spilling, "max_io_workers": 2, "idle_worker_killing_time_threshold_ms": 300})
    a = f.start_node(num_cpus=2, resources={"a": 1}, store=STORE)
    b = f.start_node(num_cpus=2, resources={"b": 1}, store=STORE)
    ray = _b.connect(f)
    make, read = remotes(ray)
    with step("60 results of 10 MB, three times the store, are made and read here"):
        made = [make.remote(i) for i in range(60)]
        expect(len(ray.wait(made, num_returns=60, timeout=240, fetch_local=False)[0]) == 60, "not all are made")
        right(ray.get([read.options(resources={"a": 0.01}).remote(i, r) for i, r in enumerate(made)], timeout=240), 60)
        expect(files(folder), "nothing is in the storage")
        stats = _b.store(a)
        expect(stats.spilled_objects_total >= 30 and stats.restored_objects_total > 0, str(stats))
    with step("another node reads them"):
        right(ray.get([read.options(resources={"b": 0.01}).remote(i, made[i]) for i in range(0, 60, 3)], timeout=240), 20)
    note(f"{len(files(folder))} files; spilled {_b.store(a).spilled_objects_total}, restored {_b.store(a).restored_objects_total} + "
         f"{_b.store(b).restored_objects_total}")
    with step("there are at most max_io_workers of a type"):
        for node in (a, b):
            for k in ("Spill", "Restore"):
                n = len(io_workers(node, k))
                expect(n <= 2, f"{n} {k} workers")
        expect(io_workers(a, "Spill") and io_workers(b, "Restore"), "no IO worker is known by its title")
    with step("the files go with the last references"):
        del made
        if kind != "smart_open":  # whose storage class deletes nothing
            wait_for(lambda: not files(folder), 60, "the storage is empty")
        wait_for(lambda: _b.store(a).object_store_bytes_used == 0, 30, "the store is empty")
    with step("IO workers that were idle for long leave"):
        wait_for(lambda: not io_workers(a) and not io_workers(b), 40, "no IO worker is left")


def killed(f):
    """An IO worker dies while it writes: what it had is written by another one."""
    _, spilling = storage(f, "slow_fs")  # a spill takes 1 to 2 s
    f.start_head(config={"object_spilling_config": spilling, "max_io_workers": 1})
    a = f.start_node(num_cpus=2, resources={"a": 1}, store=STORE)
    ray = _b.connect(f)
    make, read = remotes(ray)
    made = [make.remote(i) for i in range(40)]
    for n in range(2):
        with step(f"spill worker {n + 1} is killed while it is at work"):
            victim = wait_for(lambda: [p for p in io_workers(a, "Spill") if "SPILL_" in p.cmdline], 60, "a spill worker is at work")[0]
            os.kill(victim.pid, signal.SIGKILL)
            wait_for(lambda: _field.start_time(victim.pid) != victim.start, 10, "it is gone")
    with step("all results are made and read"):
        right(ray.get([read.options(resources={"a": 0.01}).remote(i, r) for i, r in enumerate(made)], timeout=240), 40)
    with step("a restore worker is killed, and the objects come all the same"):
        for p in io_workers(a, "Restore"):
            os.kill(p.pid, signal.SIGKILL)
        right(ray.get([read.options(resources={"a": 0.01}).remote(i, made[i]) for i in range(0, 40, 4)], timeout=120), 10)


def smart_open(f):
    try:
        import smart_open  # noqa: F401
    except ImportError:
        raise Skip("the package smart_open is not installed") from None
    whole_way(f, "smart_open")


def custom(f):
    whole_way(f, "mock_distributed_fs")


smart_open.limit = custom.limit = killed.limit = 400

if __name__ == "__main__":
    _field.run(smart_open, custom, killed)
