#!/usr/bin/env python3
"""Report B42: a node whose Python or Ray differs from the head's joins with success, and then all its workers die.

The head's versions are what it wrote into its key-value store; a head with another Python is one whose entry says so.
"""
import json
import os
import sys
import time

import _field
from _field import expect, read, wait_for

PRETEND = """
import json, sys
from ray._raylet import GcsClient
client = GcsClient(address=sys.argv[1])
facts = json.loads(client.internal_kv_get(b"CLUSTER_METADATA", b"cluster"))
facts.update(json.loads(sys.argv[2]))
client.internal_kv_put(b"CLUSTER_METADATA", json.dumps(facts).encode(), True, b"cluster")
print(json.dumps(facts))
"""


def pretend(field, **facts):
    log = field.log_path("pretend")
    process = field.spawn([field.python, "-c", PRETEND, field.address, json.dumps(facts)], log)
    wait_for(lambda: process.poll() is not None, 60, "the head's entry is changed")
    expect(process.returncode == 0, read(log))


def refused(field, program, words, env=None):
    log_before = field.log_sizes()
    node = field.launch_node(ip=f"{_field.NET}.{20 + field.count}", program=program, env=env)
    wait_for(lambda: node.process.poll() is not None, 90, f"{program[0]} ends: {node.output[-500:]}")
    said = node.output + field.daemon_log(log_before)
    what = os.path.basename(program[0])
    expect(node.process.returncode != 0, f"{what} claims success: {said[-1500:]}")
    for word in words:
        expect(word in said, f"{what} does not name {word}: {said[-1500:]}")
    left = [p for p in node.processes() if "raylet" in p.cmdline[:300]]
    left = _field._proc.wait_gone(left, 8)
    expect(not left, f"{what} left a node behind: {_field.describe(left)}")
    alive = field.alive(0, 5)
    expect(len(alive) == 1, f"the node is listed as ALIVE: {alive}")
    return said


def own():
    return ".".join(map(str, sys.version_info[:3]))


def other_minor(field):
    """Another minor version of Python cannot work: pickles of code differ."""
    field.start_head()
    pretend(field, python_version="3.9.19")
    refused(field, ["ray", "start"], ["3.9.19", own()])
    refused(field, [field.raylet_c, "start"], ["3.9.19", own()])


def other_release(field):
    """The environment of the node has another Ray than the head."""
    other = "2.35.0" if field.release != "2.35.0" else "2.60.0"
    bin_dir = field.ray_bin.replace(field.release, other)
    if not os.path.exists(os.path.join(bin_dir, "ray")):
        raise _field.Skip(f"there is no environment {bin_dir}")
    field.start_head()
    path = bin_dir + os.pathsep + os.environ["PATH"]
    refused(field, [os.path.join(bin_dir, "ray"), "start"], [], {"PATH": path})
    refused(field, [field.raylet_c, "start", f"--ray-dir={os.path.dirname(bin_dir)}"], [other, field.release])
    pretend(field, ray_version="2.99.0")
    refused(field, [field.raylet_c, "start"], ["2.99.0"])


def daemon_itself(field):
    """Whatever started it: the daemon does not join a head that its workers cannot work with."""
    field.start_head()
    pretend(field, python_version="3.9.19")
    node = field.launch_node(ip=f"{_field.NET}.31", program=[field.python, "-c", UNCHECKED, "start"])
    wait_for(lambda: "Version mismatch" in field.daemon_log() or node.process.poll() == 0, 60, "the daemon says why it leaves")
    text = field.daemon_log()
    expect("3.9.19" in text and "Version mismatch" in text, f"the daemon has joined: {text[-1500:]}")
    wait_for(lambda: not node.of("raylet"), 10, "the daemon ends")
    expect(len(field.alive(0, 5)) == 1, "the node is listed as ALIVE")


UNCHECKED = """
import ray._private.utils, ray._private.node, sys
ray._private.node.Node.check_version_info = lambda self: None
from ray.scripts.scripts import main
sys.argv[0] = "ray"
main()
"""


def other_patch(field):
    """Another patch level is harmless: with the check at that level a node joins, says so once, and works."""
    field.start_head()
    major, minor, patch = sys.version_info[:3]
    pretend(field, python_version=f"{major}.{minor}.{patch + 1}")
    node = field.start_node(program=[field.python, "-c", UNCHECKED, "start"])
    pretend(field, python_version=own())  # for the driver, whose check is Ray's own
    driver = field.driver("""
@ray.remote(resources={"under_test": 1})
def f():
    return 42
print("answer", ray.get(f.remote(), timeout=60), flush=True)
""")
    wait_for(lambda: driver.poll() is not None, 90, "the task ends")
    expect("answer 42" in read(driver.log), read(driver.log)[-1500:])
    lines = [t for t in field.daemon_log().splitlines() if f"{major}.{minor}.{patch + 1}" in t]
    expect(len(lines) == 1, f"the daemon's log names the head's patch level {len(lines)} times")
    expect(node.of("raylet"), "the node has died")


if __name__ == "__main__":
    _field.run(other_minor, other_release, daemon_itself, other_patch, limit=200)
