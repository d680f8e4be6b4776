#!/usr/bin/env python3
"""Report B17: under heavy load nodes are declared dead although the machine is fine, and learn of it late.

A hundred actors and a CPU burner on each core; then the daemon is stopped (SIGSTOP) for a while that the head forgives, and for
one that it does not. The head's health check runs at a tenth of its usual times; the load keeps the usual ones.
"""
import os
import signal
import time

import _field
from _field import expect, note, read, wait_for

ACTORS = 100
BURN_S = 40
LOAD = """
@ray.remote(num_cpus=0, resources={"under_test": 1}, max_restarts=0)
class A:
    def hold(self):
        return os.getpid()

actors = [A.remote() for _ in range(ACTORS)]
pids = ray.get([a.hold.remote() for a in actors], timeout=200)
print("up", len(set(pids)), flush=True)
calls = 0
end = time.time() + BURN_S
while time.time() < end:
    assert ray.get([a.hold.remote() for a in actors], timeout=60) == pids, "an actor was lost"
    calls += len(actors)
print("calls", calls, flush=True)
"""
PINNED = """
@ray.remote(num_cpus=0, resources={"under_test": 1}, max_restarts=0)
class A:
    def pid(self):
        return os.getpid()

a = A.remote()
print("pid", ray.get(a.pid.remote()), flush=True)
while True:
    try:
        ray.get(a.pid.remote(), timeout=20)
        print("alive", time.time(), flush=True)
    except ray.exceptions.RayActorError as e:
        print("lost", str(e).replace(chr(10), " "), flush=True)
        break
    except ray.exceptions.GetTimeoutError:
        pass
    time.sleep(0.2)
"""
BURNER = "import os, time\nfor _ in range(os.cpu_count() - 1):\n\tif not os.fork(): break\nend = time.time() + {}\nwhile time.time() < end: pass"
HEALTH = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_timeout_ms": 1500,
          "health_check_failure_threshold": 5, "raylet_liveness_self_check_interval_ms": 1000}


def load(field):
    field.start_head()
    node = field.start_node()
    driver = field.driver(LOAD.replace("ACTORS", str(ACTORS)).replace("BURN_S", str(BURN_S)))
    began = time.monotonic()
    wait_for(lambda: "up " in read(driver.log) or driver.poll() is not None, 200, f"{ACTORS} actors come up")
    note(f"{ACTORS} actors after {time.monotonic() - began:.0f} s")
    burner = field.spawn([field.python, "-c", BURNER.format(BURN_S)], field.log_path("burner"))
    wait_for(lambda: driver.poll() is not None, BURN_S + 90, "the driver ends")
    burner.wait()
    expect("calls" in read(driver.log), f"the driver ended: {read(driver.log)[-1500:]}")
    note(f"{read(driver.log).split('calls')[1].split()[0]} calls beside the burners")
    expect(any(n["node_id"] == node.node_id for n in field.alive(2, 20)), "the node is not ALIVE")


def stopped(field, seconds):
    """Stops the daemon; returns the node, the driver and the processes as they were."""
    field.start_head(config=HEALTH)
    node = field.start_node()
    driver = field.driver(PINNED)
    wait_for(lambda: "alive" in read(driver.log), 60, "the actor answers")
    wait_for(lambda: node.of("dashboard_agent") and node.of("runtime_env_agent"), 30, "the agents run")
    before = [p for p in node.processes() if "log_monitor" not in p.cmdline]
    os.kill(node.raylet, signal.SIGSTOP)
    time.sleep(seconds)  # the fault itself
    os.kill(node.raylet, signal.SIGCONT)
    return node, driver, before


def short_stop(field):
    node, driver, before = stopped(field, 2)
    since = time.time()
    wait_for(lambda: any(t.startswith("alive") and float(t.split()[1]) > since + 6 for t in read(driver.log).splitlines())
             or driver.poll() is not None, 40, "the actor answers after the stop")
    expect("lost" not in read(driver.log), f"the actor is lost: {read(driver.log)[-800:]}")
    left = _field._proc.still_running([p for p in before if p.pid == node.raylet])
    expect(left, "the daemon has left")
    expect(any(n["node_id"] == node.node_id for n in field.alive(2, 20)), "the node is not ALIVE")


def long_stop(field):
    field_log = {}
    node, driver, before = stopped(field, 15)
    raylet = [p for p in before if p.pid == node.raylet]
    left = _field._proc.wait_gone(raylet, 15)
    expect(not left, f"the buried node still runs 15 s after it went on: {field.daemon_log(field_log)[-800:]}")
    left = _field._proc.wait_gone(before, 5)
    expect(not left, f"left behind: {_field.describe(left)}")
    lines = [t for t in field.daemon_log().splitlines() if "the node ends" in t]
    expect(len(set(t.split("(raylet) ")[1] for t in lines)) == 1 and "dead" in lines[0], f"one line says why: {lines}")
    note(lines[0].split("(raylet) ")[1])
    wait_for(lambda: driver.poll() is not None, 60, "the driver hears of it")
    expect("lost" in read(driver.log), f"the actor was not reported dead: {read(driver.log)[-800:]}")


def exit_status(field):
    """The buried daemon's exit status: seen by the `ray start --block` that started it."""
    field.start_head(config=HEALTH)
    node = field.start_node(options=["--block"])
    os.kill(node.raylet, signal.SIGSTOP)
    wait_for(lambda: not any(n["node_id"] == node.node_id for n in field.alive(0, 5)), 40, "the head buries the node")
    os.kill(node.raylet, signal.SIGCONT)
    wait_for(lambda: node.process.poll() is not None, 30, "`ray start --block` ends")
    expect(node.process.returncode != 0, "`ray start --block` ended with 0")
    expect("exit code=1" in node.output.replace("exit_code", "exit code"), f"the daemon's status is not told: {node.output[-800:]}")


load.limit = 400
if __name__ == "__main__":
    _field.run(load, short_stop, long_stop, exit_status, limit=180)
