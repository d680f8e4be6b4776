"""Collectives over shared memory against gloo, on ranks of this host: bytes a second of all-gather and reduce-scatter.

    python tests/train/comm_bench.py [--ranks 2] [--mib 64] [--repeat 7] [--fabric]

The figure is the size of the gathered (or scattered) buffer over the median (and the best) time of the slowest rank; f32. "window": the data
to send lies in a window, as the engine's does; "any": it lies in memory of the script, and goes through the bounce memory. --fabric: over
libfabric on the loopback, as gloo is, where a window makes no difference.
"""
import argparse
import os
import statistics
import time

import _ranks


def measure(mib, repeat):
    import torch
    import torch.distributed as dist

    from raylet_c.train import comm as comms

    comm = comms.connect(None, "cpu")
    ranks, count = comm.size, (mib << 20) // 4
    share = count // ranks
    window = torch.frombuffer(comm.window(count * 4).memory, dtype=torch.float32)
    whole, part, out = torch.ones(count), torch.ones(share), torch.zeros(count)
    window.fill_(1)

    def ours_gather(send):
        comm.all_gather(send.data_ptr(), out.data_ptr(), share * 4)

    def ours_reduce(send):
        comm.reduce_scatter(send.data_ptr(), part.data_ptr(), share, "f32")

    calls = {
        "all-gather": {"gloo": lambda: dist.all_gather_into_tensor(out, part), "ours, any": lambda: ours_gather(part),
                       "ours, window": lambda: ours_gather(window[:share])},
        "reduce-scatter": {"gloo": lambda: dist.reduce_scatter_tensor(part, whole), "ours, any": lambda: ours_reduce(whole),
                           "ours, window": lambda: ours_reduce(window)},
    }
    result = {}
    for name, ways in calls.items():
        times = {way: [] for way in ways}
        for _ in range(repeat):
            for way, call in ways.items():  # in turn, so that what else the machine does hits all alike
                part.fill_(1)
                comm.barrier()
                begin = time.perf_counter()
                call()
                times[way].append(time.perf_counter() - begin)
        assert part[0].item() == (ranks if name == "reduce-scatter" else 1)
        for way in ways:
            slowest = torch.tensor(times[way][1:], dtype=torch.float64)  # the first one warms up
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            result[name, way] = statistics.median(slowest.tolist()), min(slowest.tolist())
    tiny = torch.ones(1)
    begin = time.perf_counter()
    for _ in range(1000):
        comm.all_reduce(tiny.data_ptr(), 1, "f32")
    result["all-reduce of one number", "ours"] = (time.perf_counter() - begin) / 1000
    begin = time.perf_counter()
    for _ in range(200):
        dist.all_reduce(tiny)
    result["all-reduce of one number", "gloo"] = (time.perf_counter() - begin) / 200
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--fabric", action="store_true")
    args = parser.parse_args()
    result = _ranks.run("comm_bench:measure", args.ranks, True, [{"mib": args.mib, "repeat": args.repeat}],
                        env={"RAYLET_C_COMM": "fabric"} if args.fabric else None)[0]
    if isinstance(result, AssertionError):
        raise result
    print("%d ranks, %d MiB, load of the machine %.1f" % (args.ranks, args.mib, os.getloadavg()[0]))
    for (name, way), seconds in result[0].items():
        if name.endswith("number"):
            print("%-26s %-14s %9.1f us" % (name, way, seconds * 1e6))
        else:
            figures = ["%8.2f GiB/s %5.1f x gloo" % (args.mib / 1024 / s, g / s) for s, g in zip(seconds, result[0][name, "gloo"])]
            print("%-26s %-14s median %s   best %s" % (name, way, *figures))


if __name__ == "__main__":
    main()
