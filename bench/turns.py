"""A stock node and ours, both alive under one stock head, asked in turns in many short rounds: warm calls, transfers of 512 MiB
with the head, idling. Beside the wall clock it takes the processor time of the daemons and of the head's raylet, which says
something on a machine that does other work too. For a ray package where `raylet-c enable` was done.

    python bench/turns.py [--ray-bin DIR] [--rounds N] [--idle SECONDS]
"""
import argparse
import os
import shutil
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "accept"))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "accept", "cases"))
import _cluster  # noqa: E402
import _proc  # noqa: E402

NODE = (
    "ray start --address={address} --node-ip-address={ip} --num-cpus=4 --object-store-memory=1500000000 --disable-usage-stats "
    "--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port={port}"
)
CALLS, MIB = 30, 512


def cpu(pid):
    """Seconds on a processor, and how often it was given one, of all threads that live."""
    seconds = times = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as f:
            fields = f.read().split()
        seconds, times = seconds + int(fields[0]) / 1e9, times + int(fields[2])
    return seconds, times


class Node:
    def __init__(self, cluster, name, ip):
        import numpy as np
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity

        known = {n["NodeID"] for n in ray.nodes()}
        command = NODE.replace("{address}", cluster.address).replace("{ip}", ip).replace("{port}", str(_cluster.free_port()))
        process = cluster._command(("RAYLET_C=0 " if name == "stock" else "") + command, f"{name}.out")
        until = time.time() + 90
        while not (new := [n for n in ray.nodes() if n["Alive"] and n["NodeID"] not in known]):
            if process.poll() not in (None, 0) or time.time() > until:
                raise SystemExit(f"the {name} node did not start: {cluster.temp_dir}/{name}.out")
            time.sleep(0.01)

        @ray.remote(num_cpus=1)
        def task():
            pass

        @ray.remote(num_cpus=0)
        class Actor:
            def call(self):
                pass

            def put(self):
                return [ray.put(np.random.randint(0, 255, MIB << 20, dtype=np.uint8))]

            def get(self, refs):
                begin = time.time()
                ray.get(refs[0])
                return time.time() - begin

        here = Affinity(new[0]["NodeID"], soft=False)
        self.name, self.figures, self.sid = name, {}, process.pid
        self.daemon = _proc.listener(new[0]["NodeManagerPort"]).pid
        self.task, self.actor = task.options(scheduling_strategy=here), Actor.options(scheduling_strategy=here).remote()
        ray.get([self.task.remote(), self.actor.call.remote()])

    def note(self, key, value):
        self.figures.setdefault(key, []).append(value)

    def calls(self):
        import ray

        ray.get(self.task.remote())
        before = cpu(self.daemon)
        for key, call in (("ms, warm task", self.task), ("ms, actor call", self.actor.call)):
            for _ in range(CALLS):
                begin = time.perf_counter()
                ray.get(call.remote())
                self.note(key, (time.perf_counter() - begin) * 1e3)
            if call is self.task:
                after = cpu(self.daemon)
                self.note("ms of the daemon's CPU a warm task", (after[0] - before[0]) * 1e3 / CALLS)
                self.note("switches of its threads a warm task", (after[1] - before[1]) / CALLS)

    def transfers(self, head, block):
        import ray

        for key in ("from the head", "to the head"):
            ref = ray.put(block) if key == "from the head" else ray.get(self.actor.put.remote())[0]
            time.sleep(0.3)
            before, head_before, begin = cpu(self.daemon)[0], cpu(head)[0], time.time()
            if key == "from the head":
                seconds = ray.get(self.actor.get.remote([ref]))
            else:
                value = ray.get(ref)
                seconds = time.time() - begin
                del value
            gib = MIB / 1024
            self.note(f"GiB/s {key}", gib / seconds)
            self.note(f"s of the daemon's CPU a GiB {key}", (cpu(self.daemon)[0] - before) / gib)
            self.note(f"s of the head's CPU a GiB {key}", (cpu(head)[0] - head_before) / gib)
            del ref


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ray-bin", default=os.path.dirname(sys.executable))
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--idle", type=float, default=30)
    args = p.parse_args()
    import numpy as np
    import ray

    cluster = _cluster.Cluster(NODE, args.ray_bin, _cluster.new_temp_dir())
    _cluster.STORE = 1_500_000_000
    nodes = []
    try:
        cluster.start_head()
        ray.init(address=cluster.address, _node_ip_address=cluster.head["ip"], logging_level="ERROR", log_to_driver=False)
        head = _proc.listener(next(n["NodeManagerPort"] for n in ray.nodes())).pid
        nodes = [Node(cluster, "stock", "127.0.0.40"), Node(cluster, "ours", "127.0.0.41")]
        time.sleep(20)  # imports of the agents
        before = [cpu(n.daemon)[0] for n in nodes]
        time.sleep(args.idle)
        for n, seconds in zip(nodes, before):
            n.note("% of a core, idle daemon", (cpu(n.daemon)[0] - seconds) / args.idle * 100)
        block = np.random.randint(0, 255, MIB << 20, dtype=np.uint8)
        for _ in range(args.rounds):
            for n in nodes:
                n.calls()
            for n in nodes:
                n.transfers(head, block)
        for key in nodes[0].figures:
            a, b = (statistics.median(n.figures[key]) for n in nodes)
            print(f"{key:40} stock {a:8.3f}  ours {b:8.3f}  ratio {b / a:6.3f}")
        ray.shutdown()
    finally:
        cluster.stop()
    shutil.rmtree(cluster.temp_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
