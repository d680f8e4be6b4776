#!/usr/bin/env python3
"""Report B15: Ctrl-C on a driver, or a worker's crash, leaves the processes of its data loaders, and they keep the GPU.

The actor has the node's only GPU (a number: none is needed) and starts a DataLoader of four processes; a second actor, which
asks for the same GPU, looks at its first instruction whether any of them is left.
"""
import os
import signal

import _field
from _field import expect, read, wait_for

DRIVER = """
@ray.remote(num_cpus=0, num_gpus=1, max_restarts=0)
class Trainer:
    def load(self):
        import subprocess
        import torch.utils.data as data

        class Numbers(data.Dataset):
            def __len__(self):
                return 100000
            def __getitem__(self, i):
                time.sleep(0.01)
                return i
        self.it = iter(data.DataLoader(Numbers(), num_workers=4, batch_size=4))
        next(self.it)
        self.other = subprocess.Popen(["setsid", "sleep", "7151"], env={})
        return os.getpid(), [w.pid for w in self.it._workers] + [self.other.pid]

@ray.remote(num_cpus=0, num_gpus=1)
class Next:
    def see(self, pids):
        def runs(pid):
            try:
                return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
            except OSError:
                return False
        return [p for p in pids if runs(p)], ray.get_gpu_ids()
"""

FIRST = DRIVER + """
t = Trainer.remote()
pid, children = ray.get(t.load.remote())
print("pids", pid, *children, flush=True)
"""

SECOND = DRIVER + """
n = Next.remote()
print("seen", *ray.get(n.see.remote(PIDS)), flush=True)
"""


def line(driver, word, seconds=150):
    def look():
        ended = driver.poll()  # before its output is read
        for text in read(driver.log).splitlines():
            if text.startswith(word + " "):
                return text.split(" ", 1)[1]
        expect(ended is None, f"the driver ended with {ended}: {read(driver.log)[-1500:]}")
        return None

    return wait_for(look, seconds, f"the driver says '{word}'")


def interrupted(field):
    field.start_head()
    field.start_node(options=["--num-gpus=1"])
    first = field.driver(FIRST + "time.sleep(600)\n")
    pids = [int(p) for p in line(first, "pids").split()]
    expect(len(pids) == 6, f"the trainer has {len(pids) - 1} children instead of 5")
    # The second driver waits for the GPU before the first one is interrupted.
    second = field.driver(SECOND.replace("PIDS", repr(pids)))
    wait_for(lambda: "seen" not in read(second.log) and second.poll() is None, 5, "the second driver runs")
    os.kill(first.pid, signal.SIGINT)
    seen = line(second, "seen", 90)
    expect(seen.startswith("[] "), f"alive when the GPU was given on: {seen}")


def killed(field):
    field.start_head()
    field.start_node(options=["--num-gpus=1"])
    driver = field.driver(FIRST + """
n = Next.remote()
asked = n.see.remote([pid, *children])
time.sleep(1)
os.kill(pid, 9)
print("seen", *ray.get(asked), flush=True)
""")
    seen = line(driver, "seen", 90)
    expect(seen.startswith("[] "), f"alive when the GPU was given on: {seen}")


if __name__ == "__main__":
    _field.run(interrupted, killed, limit=300)
