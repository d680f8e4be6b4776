#!/usr/bin/env python3
"""Report B08: with a head that keeps its state in Redis the head dies and returns, and worker nodes go down all the same.

The reconnect window is 20 s (gcs_rpc_server_reconnect_timeout_s, 60 by default): one outage stays inside it, one passes it.
"""
import os
import shutil
import signal
import time

import _field
from _field import expect, note, read, wait_for

WINDOW = 20
DRIVER = """
@ray.remote(num_cpus=0, resources={"under_test": 1}, max_restarts=0)
class Counter:
    def __init__(self):
        self.n = 0
    def add(self):
        self.n += 1
        return self.n, os.getpid()

c = Counter.options(name="counter", namespace="field", lifetime="detached").remote()
print("count", *ray.get(c.add.remote()), flush=True)
"""
AGAIN = """
c = ray.get_actor("counter", namespace="field")
print("count", *ray.get(c.add.remote(), timeout=60), flush=True)

@ray.remote(num_cpus=0, resources={"under_test": 1})
def task():
    return "done"
print("task", ray.get(task.remote(), timeout=60), flush=True)
"""


def start(field):
    # Debian's redis-tools has the server under the name of a checker: its name in argv tells which it is.
    program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if not program:
        raise _field.Skip("neither redis-server nor redis-tools is installed")
    port = _field.free_port()
    redis = field.spawn(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                         "--requirepass", "field"], field.log_path("redis"), executable=program)
    wait_for(lambda: "Ready to accept" in read(os.path.join(field.temp_dir, f"redis{field.count}.out")), 20, "redis is ready")
    expect(redis.poll() is None, "redis has ended")
    field.start_head(config={"gcs_rpc_server_reconnect_timeout_s": WINDOW}, env={"RAY_REDIS_ADDRESS": f"127.0.0.1:{port}"},
                     options=["--redis-password=field"])
    node = field.start_node()
    driver = field.driver(DRIVER)
    count = counted(driver, 1)
    # All helpers are up: their loss must show.
    wait_for(lambda: node.of("dashboard_agent") and node.of("runtime_env_agent"), 30, "the agents run")
    return node, count


def counted(driver, n):
    wait_for(lambda: driver.poll() is not None, 90, f"the driver ends: {read(driver.log)[-1000:]}")
    lines = [t.split() for t in read(driver.log).splitlines() if t.startswith("count ")]
    expect(lines and int(lines[0][1]) == n, f"the count is not {n}: {read(driver.log)[-1500:]}")
    return int(lines[0][2])


def kill_gcs(field):
    """Kills the head's GCS; returns what starts it again."""
    with open(f"/proc/{field.gcs}/cmdline", "rb") as f:
        command = [os.fsdecode(w) for w in f.read().split(b"\0")[:-1]]
    with open(f"/proc/{field.gcs}/environ", "rb") as f:
        env = dict(os.fsdecode(w).split("=", 1) for w in f.read().split(b"\0") if b"=" in w)
    os.kill(field.gcs, signal.SIGKILL)

    def again():
        process = field.spawn(command, field.log_path("gcs"), env)
        field.gcs = process.pid

    return again


def kept(before):
    return [p for p in before if p not in _field._proc.still_running(before)]


def inside(field):
    node, actor = start(field)
    raylet = node.raylet
    before = [p for p in node.processes() if p.pid in {raylet, actor} | {q.pid for k in ("dashboard_agent", "runtime_env_agent")
                                                                           for q in node.of(k)}]
    expect(len(before) == 4, f"daemon, actor and two agents were expected: {_field.describe(before)}")
    for outage, count in ((3, 2), (WINDOW - 6, 3)):
        again = kill_gcs(field)
        time.sleep(outage)  # the outage itself
        gone = kept(before)
        expect(not gone, f"gone after {outage} s without a head: {_field.describe(gone)}")
        again()
        driver = field.driver(AGAIN)
        pid = counted(driver, count)
        expect(pid == actor, "the actor is another process")
        expect("task done" in read(driver.log), f"no new task runs: {read(driver.log)[-1000:]}")
    gone = kept(before)
    expect(not gone, f"gone after the outages: {_field.describe(gone)}")
    expect(any(n["node_id"] == node.node_id for n in field.alive(2, 20)), "the node is not ALIVE")


def past(field):
    node, actor = start(field)
    raylet = node.raylet
    before = [p for p in node.processes() if "log_monitor" not in p.cmdline and p.pid != node.process.pid]
    log_before = field.log_sizes()
    began = time.monotonic()
    kill_gcs(field)
    left = _field._proc.wait_gone([p for p in before if p.pid == raylet], WINDOW + 25)
    took = time.monotonic() - began
    expect(not left, f"the node still runs {took:.0f} s after the head's end")
    note(f"the node ended after {took:.1f} s")
    expect(took > WINDOW - 1, f"the node ended after {took:.0f} s, inside the window")
    lines = [t for t in field.daemon_log(log_before).splitlines() if "the node ends" in t and f"{WINDOW} s" in t]
    expect(lines, f"no line says why: {field.daemon_log(log_before)[-1500:]}")
    left = _field._proc.wait_gone(before, 5)
    expect(not left, f"left behind: {_field.describe(left)}")


if __name__ == "__main__":
    _field.run(inside, past, limit=240)
