"""Two network namespaces with a veth between them, the sides of raylet-c/fabric/bench/link.c in each: reads over the link, the link
taken down and up in the middle, the granting side killed. Needs root; prints TAP.

    python tests/fabric_link.py --program build/fabric_link [--providers net,sockets]
"""
import argparse
import contextlib
import subprocess
import sys
import time

SIZE = 256 << 20
LIMIT = 60  # seconds for each step


def run(command, **options):
    return subprocess.run(command.split(), check=True, **options)


class Link:
    """Namespaces NAMEa and NAMEb with 10.43.7.1 and 10.43.7.2; rate: bits a second each way, None for the veth's own."""

    def __init__(self, name="fab", rate=None):
        self.name, self.a, self.b = name, name + "a", name + "b"
        self.ip = {self.a: "10.43.7.1", self.b: "10.43.7.2"}
        for n in self.a, self.b:
            run(f"ip netns add {n}")
        run(f"ip link add {self.a}0 netns {self.a} type veth peer name {self.b}0 netns {self.b}")
        for n in self.a, self.b:
            run(f"ip -n {n} addr add {self.ip[n]}/24 dev {n}0")
            run(f"ip -n {n} link set {n}0 up")
            run(f"ip -n {n} link set lo up")
            if rate:
                run(f"tc -n {n} qdisc add dev {n}0 root tbf rate {rate} burst 4mb latency 20ms")

    def start(self, side, command, **options):
        return subprocess.Popen(["ip", "netns", "exec", side, *command.split()], text=True, **options)

    def set(self, state):
        run(f"ip -n {self.b} link set {self.b}0 {state}")

    def close(self):
        for n in self.a, self.b:
            subprocess.run(["ip", "netns", "del", n], check=False)


@contextlib.contextmanager
def pair(link, program, provider, times, size=SIZE):
    """A granting process in namespace a, a reading one in b; yields both."""
    grant = link.start(link.a, f"{program} grant {provider} {link.ip[link.a]} {size}", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    read = None
    try:
        told = grant.stdout.readline().strip()
        if told.startswith("error") or not told:
            raise SystemExit(f"Bail out! {provider}: {told}")
        read = link.start(link.b, f"{program} read {provider} {link.ip[link.b]} {size} {told} {times}", stdout=subprocess.PIPE)
        yield grant, read
    finally:
        for p in grant, read:
            if p:
                p.kill()
                p.wait()


count = failed = 0


def ok(good, text, remark=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {text}", f"# {remark}" if remark else "", flush=True)


def lines(process):
    """What it prints, for LIMIT seconds."""
    begin = time.monotonic()
    while time.monotonic() - begin < LIMIT:
        line = process.stdout.readline()
        if not line:
            return
        yield line.strip()


def wait_for(said, condition):
    """The first line that is so, and the seconds until it came."""
    begin = time.monotonic()
    line = next((x for x in said if condition(x)), None)
    return line or "nothing", time.monotonic() - begin if line else LIMIT


def is_error(line):
    return line.startswith("error")


def is_round(line):
    return not is_error(line) and "WRONG" not in line


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="build/fabric_link")
    p.add_argument("--providers", default="net,sockets")
    args = p.parse_args()
    try:
        link = Link()
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"ok 1 - reads over a link # SKIP no network namespaces can be made here: {e}\n1..1")
        return
    try:
        for provider in args.providers.split(","):
            with pair(link, args.program, provider, 2) as (grant, read):
                said = list(lines(read))
                ok(len(said) == 2 and all(map(is_round, said)), f"{provider}: reads cross a link whole", "; ".join(said))
            with pair(link, args.program, provider, 1000) as (grant, read):
                said = lines(read)
                first = next(said)
                link.set("down")
                line, seconds = wait_for(said, is_error)
                ok(is_round(first) and seconds < 10, f"{provider}: a link that goes down ends reads within the limit", f"{seconds:.1f} s: {line}")
                link.set("up")
                line, seconds = wait_for(said, is_round)
                ok(seconds < LIMIT, f"{provider}: when it is up again they go on with a new endpoint", f"{seconds:.1f} s")
            with pair(link, args.program, provider, 1000) as (grant, read):
                said = lines(read)
                next(said)
                grant.kill()
                line, seconds = wait_for(said, is_error)
                ok(seconds < 10, f"{provider}: a granting side that is killed ends reads within the limit", f"{seconds:.1f} s: {line}")
    finally:
        link.close()
    print(f"1..{count}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
