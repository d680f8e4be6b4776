"""Objects between two nodes of one host: two stock nodes, and two of ours with each provider asked for, all under one stock head,
in turns. Prints medians and their ratio to the stock pair's. For a ray package where `raylet-c enable` was done.

    python bench/fabric.py [--ray-bin DIR] [--rounds N] [--pairs stock,shm,net,grpc]

`grpc` is ours with RAYLET_C_FABRIC=off. GiB/s and processor time: one object of 512 MiB, made by an actor on one node and got by
an actor on the other, compared by a checksum in the first round. Latency: objects of 64 KiB, one at a time.
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
import turns  # noqa: E402

MIB, SMALL, SMALL_COUNT = 512, 64 << 10, 100
SETTING = {"stock": "RAYLET_C=0 ", "grpc": "RAYLET_C_FABRIC=off "}


class Pair:
    def __init__(self, cluster, name, ips):
        self.name, self.figures, self.daemons, self.actors = name, {}, [], []
        for ip in ips:
            self.start(cluster, ip)

    def start(self, cluster, ip):
        import numpy as np
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity

        known = {n["NodeID"] for n in ray.nodes()}
        command = turns.NODE.replace("{address}", cluster.address).replace("{ip}", ip).replace("{port}", str(_cluster.free_port()))
        setting = SETTING.get(self.name, f"RAYLET_C_FABRIC={self.name} ")
        # Workers of the usual niceness would measure what else the machine does.
        process = cluster._command("RAY_worker_niceness=0 " + setting + command, f"{self.name}.out")
        until = time.time() + 90
        while not (new := [n for n in ray.nodes() if n["Alive"] and n["NodeID"] not in known]):
            if process.poll() not in (None, 0) or time.time() > until:
                raise SystemExit(f"a node of {self.name} did not start: {cluster.temp_dir}/{self.name}.out")
            time.sleep(0.05)

        @ray.remote(num_cpus=0)
        class Actor:
            def make(self, size, count):
                some = np.random.randint(0, 255, 1 << 16, dtype=np.uint8)
                return [ray.put(np.resize(some, size)) for _ in range(count)]

            def get(self, refs):
                begin = time.perf_counter()
                value = ray.get(refs[0])
                return time.perf_counter() - begin, len(value)

            def get_each(self, refs):
                seconds = []
                for r in refs:
                    begin = time.perf_counter()
                    ray.get(r)
                    seconds.append(time.perf_counter() - begin)
                return seconds

            def checksum(self, refs):
                import zlib

                return zlib.crc32(ray.get(refs[0]))

        self.daemons.append(_proc.listener(new[0]["NodeManagerPort"]).pid)
        self.actors.append(Actor.options(scheduling_strategy=Affinity(new[0]["NodeID"], soft=False)).remote())
        ray.get(self.actors[-1].make.remote(10, 1))

    def note(self, key, value):
        self.figures.setdefault(key, []).append(value)

    def round(self, check):
        import ray

        a, b = self.actors
        refs = ray.get(a.make.remote(MIB << 20, 1))
        time.sleep(0.3)
        before = [turns.cpu(pid)[0] for pid in self.daemons]
        seconds, n = ray.get(b.get.remote(refs))
        time.sleep(0.2)
        after = [turns.cpu(pid)[0] for pid in self.daemons]
        if n != MIB << 20 or (check and ray.get(a.checksum.remote(refs)) != ray.get(b.checksum.remote(refs))):
            raise SystemExit(f"{self.name}: the object is not what was made")
        gib = MIB / 1024
        self.note("GiB/s, 512 MiB", gib / seconds)
        self.note("s of the daemons' CPU a GiB", (sum(after) - sum(before)) / gib)
        self.note("of it the sender", (after[0] - before[0]) / gib)
        del refs
        refs = ray.get(a.make.remote(SMALL, SMALL_COUNT))
        for s in ray.get(b.get_each.remote(refs)):
            self.note("ms, 64 KiB", s * 1e3)
        del refs
        print("#", self.name, " ".join(f"{key}: {values[-1]:.3f};" for key, values in self.figures.items()), file=sys.stderr, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ray-bin", default=os.path.dirname(sys.executable))
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--pairs", default="stock,shm,net,grpc")
    p.add_argument("--net", default="127.0.0", help="first three numbers of the addresses")
    args = p.parse_args()
    import ray

    _cluster.STORE, _cluster.HEAD_IP = 500_000_000, f"{args.net}.50"
    cluster = _cluster.Cluster(turns.NODE, args.ray_bin, _cluster.new_temp_dir())
    try:
        cluster.start_head()
        ray.init(address=cluster.address, _node_ip_address=cluster.head["ip"], logging_level="ERROR", log_to_driver=False)
        names = args.pairs.split(",")
        pairs = [Pair(cluster, n, [f"{args.net}.{60 + 2 * i}", f"{args.net}.{61 + 2 * i}"]) for i, n in enumerate(names)]
        time.sleep(10)  # imports of the agents
        for i in range(args.rounds):
            for pair in pairs:
                pair.round(check=i == 0)
        ray.shutdown()
        first = pairs[0].figures
        print("figure\t" + "\t".join(f"{p.name}\tratio" for p in pairs))
        for key in first:
            middle = [statistics.median(p.figures[key]) for p in pairs]
            print(key + "\t" + "\t".join(f"{m:.3f}\t{m / middle[0]:.2f}" for m in middle))
    finally:
        cluster.stop()
        shutil.rmtree(cluster.temp_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
