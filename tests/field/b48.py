#!/usr/bin/env python3
"""Report B48: every finished job leaves dead, unreaped processes.

`raylet-c start --block` is process 1 of a pid namespace, as in a pod. A hundred times, five at once, an actor starts a
shell that leaves a sleep behind and exits, and another one dies by SIGKILL.
"""
import os
import subprocess

import _field
from _field import expect, read, wait_for

ROUNDS = 100
DRIVER = """
import subprocess

@ray.remote(num_cpus=0, resources={"under_test": 1}, max_restarts=0)
class Leaves:
    def shell(self):
        subprocess.run(["sh", "-c", "sleep 0.3 & sleep 7481 & true"])
    def leave(self):
        os._exit(0)

@ray.remote(num_cpus=0, resources={"under_test": 1}, max_restarts=0)
class Dies:
    def __init__(self):
        self.child = subprocess.Popen(["sleep", "7482"])
    def pid(self):
        return os.getpid()
    def die(self):
        os.kill(os.getpid(), 9)

def gone(call):
    try:
        ray.get(call)
    except ray.exceptions.RayActorError:
        return
    raise SystemExit("an actor outlived its end")

for i in range(ROUNDS // 5):
    pairs = [(Leaves.remote(), Dies.remote()) for _ in range(5)]
    ray.get([call for a, b in pairs for call in (a.shell.remote(), b.pid.remote())])
    for call in [call for a, b in pairs for call in (a.leave.remote(), b.die.remote())]:
        gone(call)
print("rounds done", flush=True)
time.sleep(600)
"""


def inside(raylet):
    """States of all processes in the node's pid namespace: {pid: state}."""
    space = os.readlink(f"/proc/{raylet}/ns/pid")
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        stat = read(f"/proc/{name}/stat")
        fields = stat[stat.rfind(")") + 1 :].split()
        try:
            same = os.readlink(f"/proc/{name}/ns/pid") == space
        except OSError:
            continue  # gone, or a zombie: these have no namespace link, but their parents have
        if same and fields:
            found[int(name)] = fields[0]
    found.update({z: "Z" for z in _field.zombies(set(found))})
    return found


def process_one(field):
    if subprocess.run(["unshare", "-pf", "--mount-proc", "true"], capture_output=True).returncode:
        raise _field.Skip("unshare cannot make a pid namespace here")
    field.start_head()
    node = field.start_node(program=[field.raylet_c, "start", "--block"], wrap=["unshare", "-pf", "--mount-proc", "--kill-child"])
    driver = field.driver(DRIVER.replace("ROUNDS", str(ROUNDS)))
    wait_for(lambda: "rounds done" in read(driver.log) or driver.poll() is not None, 240, f"{ROUNDS} rounds", every=0.5)
    expect("rounds done" in read(driver.log), f"the driver ended: {read(driver.log)[-1500:]}")

    def clean():
        states = inside(node.raylet)
        sleeps = [p for p in states if read(f"/proc/{p}/cmdline").startswith("sleep\0748")]
        return not sleeps and not [p for p, s in states.items() if s == "Z"]

    wait_for(clean, 10, "no zombie and no left-over child")
    _field.note(f"{len(inside(node.raylet))} processes in the namespace, no zombie")


if __name__ == "__main__":
    _field.run(process_one, limit=360)
