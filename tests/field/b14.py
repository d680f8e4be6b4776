#!/usr/bin/env python3
"""Report B14: a killed node process leaves its workers and their children running.

The node is started under a parent that adopts orphans (a child subreaper), so that nobody's parent becomes process 1.
"""
import os
import signal
import sys
import time

import _field
from _field import expect, wait_for

SUBREAPER = """
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
rc = subprocess.call(sys.argv[1:])
if rc:
	sys.exit(rc)
time.sleep(600)
"""

DRIVER = """
@ray.remote(num_cpus=0, resources={"under_test": 1})
class A:
    def __init__(self, kind):
        import subprocess
        if kind == 1:
            subprocess.Popen(["sleep", "7171"])
        elif kind == 2:
            subprocess.Popen(["sleep", "7172"], start_new_session=True, env={})
        elif kind == 3:
            subprocess.Popen(["sh", "-c", "setsid sleep 7173 & exit"], env={})
    def pid(self):
        return os.getpid()

actors = [A.remote(k) for k in range(4)]
print("pids", *ray.get([a.pid.remote() for a in actors]), flush=True)
ray.get(actors[0].pid.remote())
block = ray.put(b"x" * 10_000_000)
time.sleep(600)
"""


def sleepers():
    return [p for p in _field._proc.snapshot().values() if p.cmdline.startswith("sleep 717")]


def shared_memory(pid):
    """Device and inode of what the process maps in /dev/shm."""
    lines = (m.split() for m in _field.read(f"/proc/{pid}/maps").splitlines() if "/dev/shm/" in m)
    return {(m[3], m[4]) for m in lines}


def killed(field):
    field.start_head()
    node = field.start_node(wrap=[sys.executable, "-c", SUBREAPER])
    driver = field.driver(DRIVER)
    pids = wait_for(lambda: [int(p) for line in _field.read(driver.log).splitlines() if line.startswith("pids")
                             for p in line.split()[1:]], 120, "the actors answer")
    wait_for(lambda: len(sleepers()) >= 3, 20, "the actors' children run")
    raylet = node.raylet
    # The log monitor is no child of the daemon: `ray start` has started it, and ends it where it was told to stay (--block).
    aside = {node.process.pid} | {p.pid for p in node.of("log_monitor")}
    everything = [p for p in node.processes() if p.pid not in aside] + sleepers()
    expect(set(pids) <= {p.pid for p in everything}, "the workers are not among the node's processes")
    memory = shared_memory(raylet)
    expect(memory, "the daemon maps no shared memory")
    started = time.monotonic()
    os.kill(raylet, signal.SIGKILL)
    left = _field._proc.wait_gone(everything, 10)
    took = time.monotonic() - started
    expect(not left, f"left after 10 s: {_field.describe(left)}")
    _field.note(f"{len(everything)} processes gone within {took:.1f} s")
    left = [p for p in node.processes() if p.pid not in aside]
    expect(not left, f"born meanwhile and left: {_field.describe(left)}")
    # A driver that was attached to the node is no part of it, and has its memory until it ends.
    holders = [p for p in _field._owned(field.temp_dir) if p.pid != driver.pid and shared_memory(p.pid) & memory]
    expect(not holders, f"still map the node's shared memory: {_field.describe(holders)}")


if __name__ == "__main__":
    _field.run(killed)
