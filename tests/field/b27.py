"""Report B27: a draining node takes nothing new, lets running work end, and its end is told as a preemption."""
import os
import re
import signal
import subprocess
import time

import _b
import _field
from _b import step, wait_for
from _field import Skip, expect

PREEMPTED = ("AUTOSCALER_DRAIN_PREEMPTED", "taken by the provider")


def dead(f, node):
    """(reason, text) of the node's death as the head has it; None while it is ALIVE."""
    from ray._raylet import GcsClient
    from ray.core.generated import gcs_pb2

    for info in GcsClient(address=f.address).get_all_node_info(timeout=10).values():
        if info.node_id.hex() == node.node_id and info.state == gcs_pb2.GcsNodeInfo.DEAD:
            return type(info.death_info).Reason.Name(info.death_info.reason), info.death_info.reason_message
    return None


def drain(f, node, seconds):
    done = subprocess.run(
        [os.path.join(f.ray_bin, "ray"), "drain-node", f"--address={f.address}", f"--node-id={node.node_id}",
         "--reason=DRAIN_NODE_REASON_PREEMPTION", f"--reason-message={PREEMPTED[1]}", f"--deadline-remaining-seconds={seconds}"],
        capture_output=True, text=True, timeout=60, env=f.environment(),
    )
    expect(done.returncode == 0, done.stdout + done.stderr)


def remotes(ray):
    @ray.remote(num_cpus=1, max_retries=0)
    def work(seconds):
        time.sleep(seconds)
        return ray.get_runtime_context().get_node_id()

    @ray.remote(num_cpus=0, max_restarts=0)
    class Counter:
        def __init__(self):
            self.n = 0

        def add(self):
            self.n += 1
            return self.n

    return work, Counter


def free_cpus(ray, n):
    wait_for(lambda: ray.available_resources().get("CPU", 0) == n, 30, f"{n} CPUs are free")


def drained_while_tasks_come(f):
    f.start_head()
    leaving = f.start_node(num_cpus=2, resources={"leaving": 10})
    ray = _b.connect(f)
    work, Counter = remotes(ray)
    counter = Counter.options(resources={"leaving": 0.1}).remote()
    expect(ray.get(counter.add.remote(), timeout=60) == 1, "the actor does not count")
    running = work.options(resources={"leaving": 0.1}).remote(40)
    free_cpus(ray, 1)
    staying = f.start_node(num_cpus=2)
    with step("a busy node accepts ray drain-node with a deadline of 60 s"):
        drain(f, leaving, 60)
    with step("200 tasks sent afterwards all run on the other node"):
        places = ray.get([work.remote(0.01) for _ in range(200)], timeout=120)
        expect(set(places) == {staying.node_id}, f"{places.count(leaving.node_id)} ran on the draining node")
    with step("a task that only the draining node could take is not started there"):
        only = work.options(resources={"leaving": 0.1}).remote(0)
        expect(not ray.wait([only], timeout=3)[0], "it ran")
        ray.cancel(only)
    with step("its actor is served and its task ends"):
        expect(ray.get(counter.add.remote(), timeout=30) == 2, "the actor does not count")
        expect(not ray.wait([running], timeout=0)[0], "the long task ended before the drain was tried")
        expect(ray.get(running, timeout=60) == leaving.node_id, "it ran elsewhere")
    with step("the node leaves when its last work has ended, and the head has the preemption"):
        expect(dead(f, leaving) is None, "it left while its actor lived")
        raylet = leaving.raylet
        ray.kill(counter)
        found = wait_for(lambda: dead(f, leaving), 30, "the node is dead")
        expect(found == PREEMPTED, found)
        wait_for(lambda: not _field.start_time(raylet), 15, "the daemon has ended")


drained_while_tasks_come.limit = 200


def sigterm_past_the_deadline(f):
    f.start_head()
    node = f.start_node(num_cpus=2, resources={"leaving": 10})
    ray = _b.connect(f)
    _, Counter = remotes(ray)
    counter = Counter.options(resources={"leaving": 0.1}).remote()
    expect(ray.get(counter.add.remote(), timeout=60) == 1, "the actor does not count")
    drain(f, node, 3)
    deadline = time.time() + 3.2
    with step("past the deadline, SIGTERM ends the node and the head is told of a preemption"):
        wait_for(lambda: time.time() > deadline, 10, "the deadline has passed")
        expect(ray.get(counter.add.remote(), timeout=10) == 2, "the node went before it was told to")
        os.kill(node.raylet, signal.SIGTERM)
        found = wait_for(lambda: dead(f, node), 30, "the node is dead")
        expect(found == PREEMPTED, found)
    with step("the caller of its actor hears of the preemption"):
        try:
            ray.get(counter.add.remote(), timeout=60)
            expect(False, "the actor still answers")
        except ray.exceptions.ActorDiedError as error:
            expect(error.preempted and re.search("preempt", str(error), re.I), str(error))


def sigterm_of_start(f):
    """2.60.0: `ray start --block` drains before it ends its processes."""
    if not _b.is_260(f):
        raise Skip("ray start of this release ends its processes at once")
    f.start_head()
    node = f.start_node(num_cpus=2, resources={"leaving": 10}, options=("--block",), env={"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "30"})
    staying = f.start_node(num_cpus=2)
    ray = _b.connect(f)
    work, _ = remotes(ray)
    ours = node.processes()
    running = work.options(resources={"leaving": 0.1}).remote(8)
    free_cpus(ray, 3)
    os.kill(node.process.pid, signal.SIGTERM)
    with step("SIGTERM to ray start --block with a drain time of 30 s: new tasks go elsewhere"):
        wait_for(lambda: "draining: " in f.daemon_log() or f.stock and "raining" in node.output, 15, "the node drains")
        places = ray.get([work.remote(0.01) for _ in range(50)], timeout=60)
        expect(set(places) == {staying.node_id}, f"{places.count(node.node_id)} ran on the draining node")
    with step("the running task ends well, then the node leaves as preempted and nothing of it is left"):
        expect(ray.get(running, timeout=60) == node.node_id, "it ran elsewhere")
        found = wait_for(lambda: dead(f, node), 40, "the node is dead")
        expect(found[0] == PREEMPTED[0], found)
        left = _field._proc.wait_gone(ours, 30)
        expect(not left, f"left: {_field._proc.describe(left)}")


if __name__ == "__main__":
    _field.run(drained_while_tasks_come, sigterm_past_the_deadline, sigterm_of_start)
