"""Reads over a shaped link between two network namespaces against what iperf3 reaches on it, in turns. Needs root, tc and iperf3.

    python bench/fabric_link.py --program build/fabric_link [--rate 10gbit] [--rounds N] [--iperf3 PATH] [--provider net]

build/fabric_link: see raylet-c/fabric/bench/link.c. Prints GiB/s of each round and the ratio of the medians; processor time of the
reading side a GiB.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import fabric_link  # noqa: E402

GIB = 1 << 30


def iperf3(link, program, seconds):
    server = link.start(link.a, f"{program} -s -1 -B {link.ip[link.a]}", stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):  # until it listens
            client = link.start(link.b, f"{program} -c {link.ip[link.a]} -R -J -t {seconds}", stdout=subprocess.PIPE)
            out = json.loads(client.communicate()[0])
            if "error" not in out:
                return out["end"]["sum_received"]["bits_per_second"] / 8 / GIB
    finally:
        server.kill()
        server.wait()
    raise SystemExit(f"iperf3: {out['error']}")


def fabric(link, program, provider):
    with fabric_link.pair(link, program, provider, 3, size=GIB // 2) as (grant, read):
        rounds = [line.split() for line in fabric_link.lines(read)]
    return [(0.5 / float(seconds), float(cpu) / 0.5) for seconds, cpu in rounds[1:]]  # the first one connects


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="build/fabric_link")
    p.add_argument("--iperf3", default="iperf3")
    p.add_argument("--provider", default="net")
    p.add_argument("--rate", default="10gbit")
    p.add_argument("--rounds", type=int, default=5)
    args = p.parse_args()
    link = fabric_link.Link("fbl", args.rate)
    tcp, ours, cpu = [], [], []
    try:
        for _ in range(args.rounds):
            tcp.append(iperf3(link, args.iperf3, 2))
            for rate, seconds in fabric(link, args.program, args.provider):
                ours.append(rate)
                cpu.append(seconds)
            print(f"# iperf3 {tcp[-1]:.3f} GiB/s; {args.provider} {ours[-2]:.3f} {ours[-1]:.3f}", flush=True)
    finally:
        link.close()
    a, b = statistics.median(tcp), statistics.median(ours)
    print(f"{args.rate}: iperf3 {a:.3f} GiB/s, {args.provider} {b:.3f} GiB/s, ratio {b / a:.2f}; best {max(tcp):.3f}, {max(ours):.3f}, "
          f"{max(ours) / max(tcp):.2f}; reader's processor time {statistics.median(cpu):.2f} s a GiB")


if __name__ == "__main__":
    main()
