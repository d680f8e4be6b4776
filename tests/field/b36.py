#!/usr/bin/env python3
"""Report B36: a narrow worker port range hangs tasks once it is used up; a taken port leaves a half-started node."""
import socket
import time

import _field
from _field import expect, read, wait_for

TASKS = """
@ray.remote(num_cpus=1, resources={"under_test": 1})
def work(i):
    time.sleep(0.5)
    return os.getpid()

@ray.remote(num_cpus=0, resources={"under_test": 1})
class A:
    def pid(self):
        return os.getpid()

began = time.time()
pids = ray.get([work.remote(i) for i in range(20)], timeout=90)
print("tasks", len(pids), len(set(pids)), round(time.time() - began, 1), flush=True)
# More actors than ports: the last ones wait until others are gone.
actors = [A.remote() for _ in range(9)]
ready = []
while len(ready) < 9:
    done, _ = ray.wait([a.pid.remote() for a in actors], num_returns=min(4, len(actors)), timeout=60)
    assert done, "no actor came up"
    for a in list(actors):
        try:
            ray.get(a.pid.remote(), timeout=1)
        except ray.exceptions.GetTimeoutError:
            continue
        ready.append(a)
        actors.remove(a)
        ray.kill(a)
print("actors", len(ready), flush=True)
"""


def narrow_range(field):
    """The ports of a range of six: 20 tasks that run side by side finish, and so do 9 actors."""
    low = free_range(6)
    field.start_head()
    node = field.start_node(num_cpus=20, options=[f"--min-worker-port={low}", f"--max-worker-port={low + 5}"])
    driver = field.driver(TASKS)
    wait_for(lambda: driver.poll() is not None, 150, f"tasks and actors end: {read(driver.log)[-500:]}", every=0.5)
    text = read(driver.log)
    expect("tasks 20" in text and "actors 9" in text, f"the driver ended with {driver.returncode}: {text[-1500:]}")
    _field.note(", ".join(t for t in text.splitlines() if t.startswith(("tasks", "actors"))))
    expect(node.of("raylet"), "the node has died")


def free_range(n):
    while True:
        low = _field.free_port()
        held = []
        try:
            for port in range(low, low + n):
                s = socket.socket()
                held.append(s)
                s.bind(("0.0.0.0", port))
            return low
        except OSError:
            pass
        finally:
            for s in held:
                s.close()


def occupied(address="0.0.0.0"):
    s = socket.socket()
    s.bind((address, 0))
    s.listen(1)
    return s, s.getsockname()[1]


def try_port(field, option, program, limit):
    """Starts a node with this option on a taken port: status, what it said, seconds."""
    holder, port = occupied()
    try:
        began = time.monotonic()
        log_before = field.log_sizes()
        node = field.launch_node(ip=f"{_field.NET}.{20 + field.count}", program=program, options=[f"--{option}={port}"])
        wait_for(lambda: node.process.poll() is not None, limit, f"{program[0]} --{option}={port} ends")
        took = time.monotonic() - began
        said = node.output + field.daemon_log(log_before)
        aside = {p.pid for p in node.of("log_monitor")} if program[0] == "ray" else set()  # no child of the daemon
        left = [p for p in node.processes() if p.pid not in aside]
        if left:  # they may be on their way out
            left = _field._proc.wait_gone(left, 5)
        return node, port, said, took, left
    finally:
        holder.close()


OPTIONS = ("node-manager-port", "object-manager-port", "metrics-export-port", "dashboard-agent-listen-port")


def check_taken(field, program, quick, options=OPTIONS):
    field.start_head()
    for option in options:
        node, port, said, took, left = try_port(field, option, program, 90)
        _field.note(f"{option}: status {node.process.returncode} after {took:.1f} s")
        expect(node.process.returncode != 0, f"--{option}={port} is taken, and the start claims success: {node.output[-800:]}")
        named = [line for line in said.splitlines() if str(port) in line and option.replace("-", "_") in line.replace("-", "_")]
        expect(named, f"no line names --{option} and {port}: {said[-1500:]}")
        expect(took < quick, f"--{option}={port}: the end took {took:.1f} s")
        expect(not left, f"--{option}={port}: left running: {_field.describe(left)}")
    alive = field.alive(0, 5)
    expect(len(alive) == 1, f"half-started nodes are listed ALIVE: {alive}")


def taken_ray_start(field):
    """`ray start` waits 30 s for a node that has said at once that it ends: the time is its own, and so is the log monitor."""
    check_taken(field, ["ray", "start"], 75, OPTIONS[1:3])


def taken_raylet_c(field):
    check_taken(field, [field.raylet_c, "start"], 15)


taken_ray_start.limit = 300
if __name__ == "__main__":
    _field.run(narrow_range, taken_ray_start, taken_raylet_c, limit=200)
