"""FSDP2 over libfabric between two hosts, which two network namespaces with process namespaces of their own stand for: the losses and weights
of a run over shared memory bit for bit, and the bytes that crossed, counted by the interface. Needs root; prints TAP.

    python tests/train/fabric_test.py
"""
import contextlib
import os
import subprocess
import sys

import _ranks

STEPS = 6
NAMES = "rcfaba", "rcfabb"
IPS = "10.43.8.1", "10.43.8.2"
HEADERS = 0.03  # Ethernet, IP and TCP (a veth counts large segments whole), acknowledgements, heads of messages, meetings


def received():
    """Bytes that came over interfaces other than lo."""
    with open("/proc/net/dev", encoding="ascii") as f:
        lines = [line.split(":") for line in f if ":" in line]
    return sum(int(rest.split()[0]) for name, rest in lines if name.strip() != "lo")


def train():
    import torch
    import torch.distributed as dist

    import schedule_test
    from raylet_c import train as ours

    ours.install(two_level=True, ranks_per_node=0)
    model, layers = schedule_test.build("square")
    sharded, on_engine = schedule_test.shard(model, layers, "fsdp2")
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(10 + dist.get_rank())
    losses, traffic, came = [], [], []
    for _ in range(STEPS):
        loss = schedule_test.loss_of(sharded, "square", torch.randint(0, 60, (2, 12), generator=data))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        dist.barrier()  # before and after the counting, so that no rank of the host is ahead
        traffic.append(ours.traffic())
        came.append(received())
        dist.barrier()
    levels = next(iter(ours.levels.models)).levels
    return dict(ours=on_engine(), losses=losses, weights=[p.full_tensor().detach() for p in sharded.parameters()],
                between=traffic[-1]["between"] - traffic[0]["between"], came=came[-1] - came[0],
                transports=sorted({c.transport.split()[0] for c in levels.comms}), group=dist.group.WORLD.comm().transport)


@contextlib.contextmanager
def hosts():
    """The commands that put a process on the first and on the second."""
    def ip(*words):
        subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)

    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", NAMES[0], "type", "veth", "peer", "name", "eth0", "netns", NAMES[1])
        for name, address in zip(NAMES, IPS):
            ip("-n", name, "addr", "add", address + "/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        with contextlib.ExitStack() as stack:
            inside = []
            for name in NAMES:  # a process whose namespaces the ranks of a host share; it ends with this one
                first = stack.enter_context(subprocess.Popen(["ip", "netns", "exec", name, "unshare", "--pid", "--mount", "--fork", "--kill-child",
                                                              "--mount-proc", "sh", "-c", "echo up; exec cat"],
                                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
                stack.callback(first.kill)
                assert first.stdout.readline() == "up\n"
                with open(f"/proc/{first.pid}/task/{first.pid}/children", encoding="ascii") as f:
                    init = f.read().split()[0]
                inside.append(["nsenter", "--target", init, "--net", "--pid", "--mount", "--"])
            yield inside
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False)


def equal_run(got, want, transports):
    for result in got, want:
        if isinstance(result, Exception):
            raise result
    import torch

    for ours, shm in zip(got, want):
        assert ours["ours"] and shm["ours"], "not on the engine"
        assert shm["transports"] == ["shm"], shm["transports"]
        assert ours["transports"] == transports and ours["group"].startswith("fabric"), (ours["transports"], ours["group"])
        assert ours["losses"] == shm["losses"], (ours["losses"], shm["losses"])
        assert all(map(torch.equal, ours["weights"], shm["weights"])), "weights differ"


def counted(got):
    """The bytes of the interface of each host against those that the engine says its rank took from the other."""
    if isinstance(got, Exception):
        raise got
    for host, result in enumerate(got):
        planned, came = result["between"], result["came"]
        print("# host %d: %d bytes planned, %d came, %.2f %% more" % (host, planned, came, 100 * (came / planned - 1)))
        assert planned < came < planned * (1 + HEADERS), (planned, came)


def main():
    tap = _ranks.Tap()
    if os.geteuid() or subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], check=False).returncode:
        print("ok 1 - FSDP2 over a link # SKIP no namespaces can be made here\n1..1")
        return
    backend = {"RANKS_BACKEND": "raylet_c"}
    far = {**backend, "MASTER_ADDR": IPS[0], "GLOO_SOCKET_IFNAME": "eth0"}
    want = _ranks.run("fabric_test:train", 2, True, [{}], env=backend)[0]
    forced = _ranks.run("fabric_test:train", 2, True, [{}], env={**backend, "RAYLET_C_COMM": "fabric"})[0]
    tap.check("RAYLET_C_COMM=fabric takes libfabric on one host too, with the bits of shared memory", equal_run, forced, want, ["fabric"])
    with hosts() as at:
        got = _ranks.run("fabric_test:train", 2, True, [{}], env=far, places=at)[0]
        tap.check("2 hosts of 1 rank train with the bits of shared memory", equal_run, got, want, ["fabric"])
        tap.check("and the bytes that cross are those of the plan, and headers", counted, got)
    tap.end()


if __name__ == "__main__":
    main()
