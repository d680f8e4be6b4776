#!/usr/bin/env python3
"""Report B35: workers that start at the same time miss the registration limit, and hung starts pile up.

A hundred actors at once; then starts of which every tenth hangs in sitecustomize and every tenth exits there, with a limit of
10 s instead of 60. Prefork is off for these: a forked worker runs no sitecustomize.
"""
import os
import threading
import time

import _field
from _field import expect, note, read, wait_for

DRIVER = """
@ray.remote(num_cpus=0, resources={"under_test": 1}, max_restarts=0)
class A:
    def pid(self):
        return os.getpid()

began = time.time()
actors = [A.remote() for _ in range(ACTORS)]
pids = ray.get([a.pid.remote() for a in actors], timeout=LIMIT)
print("up", len(set(pids)), round(time.time() - began, 1), flush=True)
time.sleep(600)
"""
# Of ten starts of a worker one sleeps and one exits; each start takes a number by making a file that was not there.
SITE = """
import os, sys, time
if any("default_worker" in a for a in sys.orig_argv) and not any("setup_worker" in a for a in sys.orig_argv):
    folder, n = os.environ["FIELD_STARTS"], 0
    while True:
        n += 1
        try:
            os.close(os.open(os.path.join(folder, str(n)), os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            pass
    if n % 10 == 0:
        open(os.path.join(folder, f"hung.{os.getpid()}"), "w").close()
        time.sleep(120)
    if n % 10 == 5:
        open(os.path.join(folder, f"died.{os.getpid()}"), "w").close()
        os._exit(3)
"""


class Peak(threading.Thread):
    """How many workers were alive at once."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node, self.most, self.over = node, 0, False
        self.start()

    def run(self):
        while not self.over:
            self.most = max(self.most, len(self.node.of("worker")))
            time.sleep(0.5)


def at_once(field):
    field.start_head()
    node = field.start_node()
    peak = Peak(node)
    driver = field.driver(DRIVER.replace("ACTORS", "100").replace("LIMIT", "240"))
    wait_for(lambda: "up " in read(driver.log) or driver.poll() is not None, 260, "100 actors come up")
    peak.over = True
    expect("up 100" in read(driver.log), read(driver.log)[-1500:])
    note(f"{read(driver.log).split('up')[1].split()[1]} s to the last actor, {peak.most} workers at most")
    expect(peak.most <= 100 + 2 * os.cpu_count() + 4, f"{peak.most} workers for 100 actors")
    late = [t for t in field.daemon_log().splitlines() if "registered too late" in t or "hung while starting" in t]
    expect(not late, f"starts were late: {late[:3]}")


def hung(field):
    folder, starts = os.path.join(field.temp_dir, "site"), os.path.join(field.temp_dir, "starts")
    os.mkdir(folder)
    os.mkdir(starts)
    with open(os.path.join(folder, "sitecustomize.py"), "w") as f:
        f.write(SITE)
    field.start_head(config={"worker_register_timeout_seconds": 10})
    node = field.start_node(env={"PYTHONPATH": folder, "FIELD_STARTS": starts, "RAYLET_C_PREFORK": "0"})
    actors = 30
    driver = field.driver(DRIVER.replace("ACTORS", str(actors)).replace("LIMIT", "240"))
    peak = Peak(node)
    wait_for(lambda: "up " in read(driver.log) or driver.poll() is not None, 260, f"{actors} actors come up")
    peak.over = True
    expect(f"up {actors}" in read(driver.log), read(driver.log)[-1500:])
    pids = [int(n.split(".")[1]) for n in os.listdir(starts) if n.startswith("hung.")]
    note(f"{read(driver.log).split('up')[1].split()[1]} s to the last actor, {len(pids)} starts hung, {peak.most} workers at most")
    expect(len(pids) >= 3, f"only {len(pids)} starts hung: the test tests nothing")
    expect(peak.most <= actors + 2 * os.cpu_count() + 4, f"{peak.most} workers for {actors} actors")
    # Each is killed at its limit, and the log says that it hung.
    wait_for(lambda: not [p for p in pids if _field.start_time(p)], 15, "the hung starts are ended")
    said = field.daemon_log()
    silent = [p for p in pids if f"process {p} was alive but did not register" not in said]
    expect(not silent, f"no line says that {silent} hung")
    died = [int(n.split(".")[1]) for n in os.listdir(starts) if n.startswith("died.")]
    silent = [p for p in died if f"worker {p} ended before it was ready: exit status 3" not in said]
    expect(died and not silent, f"no line says that {silent} of {died} died")


if __name__ == "__main__":
    _field.run(at_once, hung, limit=320)
