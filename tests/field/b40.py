"""Report B40: trainers take the interface of the node's own address, whatever bridges and second cards there are; the user's own word wins.

Two hosts are two network namespaces, joined by a veth. Each has a card more, earlier in the alphabet, whose subnet overlaps the joint one
and where nobody answers. Needs root."""
import ctypes
import json
import os
import subprocess

from _field import Field, Skip, expect, read, run, wait_for

LOOP = """
import json

@ray.remote(num_cpus=0)
class Rank:
    def run(self, rank, port):
        import torch, torch.distributed as dist
        from datetime import timedelta
        os.environ.update(MASTER_ADDR="10.44.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
        x = torch.ones(4)
        dist.all_reduce(x)
        return x[0].item(), os.environ.get("GLOO_SOCKET_IFNAME"), os.environ.get("NCCL_SOCKET_IFNAME")

ranks = [Rank.options(resources={name: 1}).remote() for name in ("a", "b")]
try:
    print("FOUND " + json.dumps(ray.get([rank.run.remote(i, THE_PORT) for i, rank in enumerate(ranks)], timeout=150)))
except Exception as error:
    print("FAILED " + " ".join(str(error).split()))
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Hosts:
    """Namespaces a and b; this process, and what it starts, goes into a."""

    def __init__(self):
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        self.names = [f"docb40-{os.getpid()}-{c}" for c in "ab"]
        try:
            for name in self.names:
                ip("netns", "add", name)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skip(f"no network namespaces here: {error}") from error
        ip("link", "add", "veth0", "netns", self.names[0], "type", "veth", "peer", "name", "veth0", "netns", self.names[1])
        for i, name in enumerate(self.names, 1):
            for link, address in (("veth0", f"10.44.0.{i}/24"), ("aaa0", f"10.44.0.{200 + i}/26")):
                if link == "aaa0":
                    ip("-n", name, "link", "add", link, "type", "bridge")
                ip("-n", name, "addr", "add", address, "dev", link)
                ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        with open(f"/run/netns/{self.names[0]}") as f:
            if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0x40000000):
                raise Skip("setns: " + os.strerror(ctypes.get_errno()))

    def delete(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name])


def ranks(f, port, **env):
    # The two hosts share the session's folder, in which 2.35.0 finds the address of the node that was started last.
    init = "_node_ip_address='10.44.0.1', runtime_env={'env_vars': %r}" % env
    driver = f.driver(LOOP.replace("THE_PORT", str(port)), init=init)
    wait_for(lambda: driver.poll() is not None, 200, "the driver ends")
    return read(driver.log)


def two_hosts(f: Field):
    hosts = Hosts()
    try:
        f.head_ip = "10.44.0.1"
        f.start_head(config={"worker_niceness": 0})  # as in b24.py
        f.start_node(ip="10.44.0.1", resources={"a": 1})
        f.start_node(ip="10.44.0.2", resources={"b": 1}, wrap=("ip", "netns", "exec", hosts.names[1]))
        found = ranks(f, 29501)
        expect("FOUND" in found, "with the node's defaults: " + found[-1500:])
        for total, gloo, nccl in json.loads(found.split("FOUND ")[1].splitlines()[0]):
            expect((total, gloo, nccl) == (2.0, "veth0", "=veth0"), f"{total} {gloo} {nccl}")
        logs = [os.path.join(f.session_logs(), n) for n in os.listdir(f.session_logs()) if n.startswith("worker-") and n.endswith(".err")]
        told = {line for n in logs for line in read(n).splitlines() if "training transport" in line}
        expect(len(told) == 2 and all("TCP on 10.44.0.%d (veth0)" % i in "".join(told) for i in (1, 2)), f"{told}")
        found = ranks(f, 29502, GLOO_SOCKET_IFNAME="aaa0")
        expect("FAILED" in found and ("10.44.0.20" in found or "onnect" in found), "the user's own, wrong interface was not taken: " + found[-1500:])
    finally:
        hosts.delete()


run(two_hosts, limit=480)
