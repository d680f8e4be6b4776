"""`raylet-c top` on a node at work: what it tells as JSON, and its behaviour in a terminal (keys, window size, stop and go on, the ways out)."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from _field import Field, Skip, expect, note, read, run, wait_for

WORK = """
@ray.remote(num_cpus=1, resources={"under_test": 1})
class Sleeper:
    def pid(self):
        self.kept = ray.put(bytes(30_000_000))
        return os.getpid()

    def nap(self):
        time.sleep(600)

group = ray.util.placement_group([{"CPU": 1, "under_test": 1}])
ray.get(group.ready())
sleeper = Sleeper.options(name="sleeper").remote()
print("SLEEPER", ray.get(sleeper.pid.remote()), group.id.hex(), flush=True)
sleeper.nap.remote()
time.sleep(900)
"""


def at_work(f):
    f.start_head()
    node = f.start_node()
    program = f.driver(WORK)
    m = wait_for(lambda: re.search(r"SLEEPER (\d+) (\w+)", read(program.log)), 120, f"the actor runs: {read(program.log)[-800:]}")
    return node, int(m[1]), m[2]


def top(f, *words):
    return subprocess.run([f.raylet_c, "top", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, env=f.environment())


def figures(f: Field):
    """--json and --once: the node, its lease, bundle, object and processes."""
    node, pid, group = at_work(f)
    done = top(f, "--json")
    expect(done.returncode == 0 and not done.stderr, f"{done.returncode} {done.stderr}")
    mine = [n for n in json.loads(done.stdout)["nodes"] if n["node_id"] == node.node_id]
    expect(len(mine) == 1, f"{done.stdout[:500]}")
    told = mine[0]
    expect("error" not in told, told.get("error"))
    expect(told["state"] == "alive" and told["pid"] == node.raylet and told["ray_version"] == f.release, f"{told}")
    expect(told["total"]["CPU"] == 4 and told["free"]["CPU"] == 2, f"{told['total']} {told['free']}")
    expect(told["leases"] == {"granted": 1, "waiting": 0}, f"{told['leases']}")
    expect([(b["group"], b["index"], b["state"]) for b in told["bundles"]] == [(group, 0, "committed")], f"{told['bundles']}")
    expect(30_000_000 <= told["store"]["used"] < 31_000_000 and told["store"]["capacity"] >= 290_000_000, f"{told['store']}")
    worker = next((w for w in told["workers"] if w["pid"] == pid), None)
    expect(worker and worker["state"] == "leased" and worker["lease"]["actor"], f"{told['workers']}")
    expect(worker["lease"]["resources"] == {"CPU": 1, "under_test": 1}, f"{worker}")
    expect(worker["title"] == "ray::Sleeper.nap" and worker["rss"] > 20 << 20, f"{worker}")
    expect(1 << 20 < told["pss"] < 64 << 20, f"{told['pss']}")
    text = top(f, "--once").stdout
    for words in (f"node {node.node_id[:8]}  alive", "2/4", "leases 1 granted, 0 waiting   bundles 1", "ray::Sleeper.nap"):
        expect(words in text, f"{words!r} is not in {text}")
    note(text)


END = "\x1b[m"  # of a picture


class Terminal:
    """The command in a terminal of its own; what it wrote is in .text."""

    def __init__(self, f, *words):
        self.master, self.slave = pty.openpty()
        self.size(30, 120)
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        env = f.environment({"TERM": "xterm"})
        self.process = subprocess.Popen([f.raylet_c, "top", *words], stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE, env=env,
                                        process_group=0)  # not orphaned: SIGTSTP stops it

    def size(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")

    def until(self, what, seconds, name):
        end = time.monotonic() + seconds
        while not what(self.text):
            expect(time.monotonic() < end and self.process.poll() is None, f"{name}; it wrote {self.text[-1500:]!r}")
            self.read(0.2)

    def key(self, keys):
        self.text = ""
        os.write(self.master, keys)

    def signal(self, number):
        self.text = ""
        self.process.send_signal(number)

    def ended(self, seconds=10):
        """The exit status, once the last output was read and the terminal is as before."""
        wait_for(lambda: self.read(0.1) or self.process.poll() is not None, seconds, "it ends")
        self.read(0.5)
        expect(self.text.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l"), f"the screen is not given back: {self.text[-200:]!r}")
        expect(termios.tcgetattr(self.slave) == self.before, "the terminal's settings are not given back")
        expect(not fcntl.fcntl(self.slave, fcntl.F_GETFL) & os.O_NONBLOCK, "the terminal is left non-blocking")
        return self.process.returncode


def frame(text):
    """The last whole picture, as lines without sequences."""
    last = [p.split(END)[0] for p in text.split("\x1b[H") if END in p][-1]
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in last.replace("\r", "").split("\n")]


def terminal(f: Field):
    """Keys, the window's size, SIGTSTP and SIGCONT, q, SIGTERM and SIGINT."""
    _, pid, _ = at_work(f)
    t = Terminal(f)
    row = re.compile(rf"^ *{pid} .*ray::Sleeper", re.M)
    shows = lambda text: END in text and row.search("\n".join(frame(text)))  # noqa: E731
    t.until(shows, 30, "the actor's line")
    t.key(b"h")
    t.until(lambda text: "sort by memory" in text, 10, "the help")
    t.key(b"h")
    t.until(shows, 10, "the actor's line again")
    t.key(b"\x1b[B" * 50)  # past the end
    t.until(lambda text: END in text, 10, "a picture that was scrolled")
    t.key(b"g")
    t.until(shows, 10, "the top again")
    t.size(9, 40)
    t.signal(signal.SIGWINCH)
    small = lambda text: END in text and len(frame(text)) <= 9  # noqa: E731
    t.until(small, 10, "a small picture")
    expect(max(map(len, frame(t.text))) <= 40, f"{frame(t.text)}")
    t.size(30, 120)
    t.signal(signal.SIGTSTP)
    wait_for(lambda: t.read(0.1) or "T (stopped)" in read(f"/proc/{t.process.pid}/status"), 10, "it stops")
    t.read(0.2)
    expect(t.text.endswith("\x1b[?1049l") and termios.tcgetattr(t.slave) == t.before, "the shell has no terminal meanwhile")
    t.signal(signal.SIGCONT)
    t.until(shows, 10, "the actor's line after SIGCONT")
    t.key(b"q")
    expect(t.ended() == 0, f"{t.process.returncode}")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        t = Terminal(f, "--interval", "0.2")
        t.until(shows, 30, "the actor's line")
        t.process.send_signal(number)
        expect(t.ended() == 0, f"{number}: {t.process.returncode}")
    ticks = os.sysconf("SC_CLK_TCK")
    t = Terminal(f)
    t.until(shows, 30, "the actor's line")
    stat = lambda: sum(map(int, read(f"/proc/{t.process.pid}/stat").rsplit(")", 1)[1].split()[11:13]))  # noqa: E731
    began, first = time.monotonic(), stat()
    while time.monotonic() < began + 10:
        t.read(0.5)
    note(f"processor time: {100 * (stat() - first) / ticks / (time.monotonic() - began):.2f} % of a core")
    t.key(b"q")
    expect(t.ended() == 0, "q")


def no_terminal(f: Field):
    """Refusals: no terminal, wrong words; nothing here is status 1."""
    for words, status, text in (((), 1, "--once prints one picture"), (("--interval", "0"), 2, "--interval: 0"), (("--sort", "x"), 2, "--sort: x"),
                                (("--what",), 2, "--what")):
        done = top(f, *words)
        expect(done.returncode == status and text in done.stderr and not done.stdout and done.stderr.count("\n") == 1, f"{words}: {done}")


TRAIN = """
def loop():
    import torch
    from torch.distributed.fsdp import fully_shard
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.1)

from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1, "under_test": 1})).fit()
"""


def train_steps(f: Field):
    """Train workers whose model is on our engine: steps and their rate; what counted them goes with the workers."""
    if subprocess.run([f.python, "-c", "import torch, raylet_c.train"], capture_output=True, env=f.environment()).returncode:
        raise Skip("torch and raylet_c are not both in this environment: bazel/dev.sh wheel, pip install build/raylet_c-*.whl")
    f.start_head()
    f.start_node()
    program = f.driver(TRAIN)

    def counting():
        expect(program.poll() is None, f"the trainer ended: {read(program.log)[-2000:]}")
        nodes = json.loads(top(f, "--json").stdout)["nodes"]
        found = [w for n in nodes for w in n.get("workers", []) if w.get("steps_per_s", 0) > 0]
        return found if len(found) == 2 else None

    found = wait_for(counting, 150, "two workers make steps")
    expect(all(0.5 < w["steps_per_s"] < 12 for w in found), f"{[(w['steps'], w['steps_per_s']) for w in found]}: at most 10 a second are made")
    expect("step " in top(f, "--once").stdout, "no step in the picture")
    files = lambda: [n for n in os.listdir(f.session_logs()) if n.startswith("steps-")]  # noqa: E731
    expect(sorted(files()) == sorted(f"steps-{w['pid']}" for w in found), f"{files()}")
    program.kill()
    wait_for(lambda: not files(), 60, f"the files go: {files()}")


run(figures, train_steps, terminal, no_terminal, limit=300)
