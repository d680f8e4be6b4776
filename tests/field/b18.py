"""Report B18: a placement group removed while it is being made leaves nothing reserved."""
import os
import random
import signal
import time

import _b
import _field
from _b import step, wait_for
from _field import expect

ROUNDS, STOPPED = 100, 3  # in all; rounds in which the second node is stopped for a while


def removed_while_made(f):
    f.start_head()
    nodes = [f.start_node(num_cpus=2, resources={"part": 4}, store=200_000_000) for _ in range(2)]
    ray = _b.connect(f)
    from ray._private.state import available_resources_per_node, total_resources_per_node
    from ray.util.placement_group import placement_group, remove_placement_group

    random.seed(18)
    second = nodes[1].raylet
    stop_at = set(random.sample(range(10, ROUNDS), STOPPED))

    def state():
        """What is not back: node -> name -> (total, available); and names of groups."""
        total, free = total_resources_per_node(), available_resources_per_node()
        short = {}
        for n in nodes:
            has = free.get(n.node_id, {})
            short.update({(n.node_id[:6], k): (v, has.get(k, 0)) for k, v in total[n.node_id].items() if has.get(k, 0) != v})
        return {k: v for k, v in short.items() if "memory" not in k[1]}, [k for n in nodes for k in free[n.node_id] if "_group_" in k]

    def all_back():
        return state() == ({}, [])

    with step(f"{ROUNDS} groups removed 0 to 20 ms after they were asked for, the node stopped in {STOPPED} of them"):
        for i in range(ROUNDS):
            if i in stop_at:
                os.kill(second, signal.SIGSTOP)
            group = placement_group([{"CPU": 1, "part": 1}] * 2, strategy="STRICT_SPREAD")
            time.sleep(random.uniform(0, 0.02))
            remove_placement_group(group)
            if i in stop_at:
                time.sleep(3)
                os.kill(second, signal.SIGCONT)
    with step("all resources of both nodes are back"):
        wait_for(all_back, 20, "all resources are free", every=0.2)
    with step("a group of all CPUs is made afterwards and has tasks on both nodes"):
        group = placement_group([{"CPU": 2, "part": 4}] * 2, strategy="STRICT_SPREAD")
        expect(group.wait(20), f"not ready: {state()}")

        @ray.remote(num_cpus=2)
        def where():
            return ray.get_runtime_context().get_node_id()

        found = ray.get([where.options(placement_group=group, placement_group_bundle_index=i).remote() for i in range(2)], timeout=60)
        expect(sorted(found) == sorted(n.node_id for n in nodes), found)
    with step("a group removed while tasks run in it gives all back"):

        @ray.remote(num_cpus=1, max_retries=0)
        def sleep():
            time.sleep(600)

        tasks = [sleep.options(placement_group=group, placement_group_bundle_index=i % 2).remote() for i in range(4)]
        ray.wait(tasks, timeout=1)
        remove_placement_group(group)
        wait_for(all_back, 20, "all resources are free", every=0.2)


removed_while_made.limit = 240

if __name__ == "__main__":
    _field.run(removed_while_made)
