"""A rank that dies, stops, ends or computes another model: every other rank gets an error that names rank, unit and phase, within the timeout,
and no process stays behind (report B13).

    python tests/train/faults_test.py [TEXT]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import _ranks

TIMEOUT = 6  # seconds, of the process group: what the engine takes for its own


def work(fault):
    import datetime

    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    rank = dist.get_rank()
    group = dist.new_group(timeout=datetime.timedelta(seconds=TIMEOUT))
    mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(4)]
    if fault == "other model" and rank == 1:
        layers[2] = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 16))
    model = torch.nn.Sequential(*layers)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for step in range(4):
        if rank == 1 and step == 2:
            if fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            if fault == "raises":
                raise ValueError("this rank's data is bad")
            if fault == "skips a step":
                continue
        model(torch.randn(3, 16)).sum().backward()
    if fault == "skips a step":
        time.sleep(2 * TIMEOUT)


CASES = [  # fault, number of ranks, what the others' texts must name. With four, rank 1 is one of two in the first of two nodes
    ("killed", 2, ["rank 1", "died"]),
    ("stopped", 2, ["rank 1", "did not come within %d s" % TIMEOUT]),
    ("raises", 2, ["rank 1"]),
    ("other model", 2, ["rank 1", "sizes differ"]),
    ("skips a step", 2, ["rank 1", "did not come within %d s" % TIMEOUT]),
    ("killed", 4, ["died", "of all)"]),
    ("skips a step", 4, ["did not come within %d s" % TIMEOUT, "of all)"]),
]


def run(fault, size):
    """(the codes with which all ranks but 1 have ended, their outputs, which processes stayed)"""
    others = [r for r in range(size) if r != 1]
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_ranks._free_port()), WORLD_SIZE=str(size), OMP_NUM_THREADS="1",
                   PYTHONPATH=_ranks.python_path(), RANKS_FOLDER=folder, RAYLET_C_RANKS_PER_NODE="2")
        logs = [open(os.path.join(folder, "%d.log" % r), "w+") for r in range(size)]
        command = [sys.executable, os.path.join(_ranks.HERE, "_ranks.py"), "faults_test:work", "ours", json.dumps([dict(fault=fault)])]
        ranks = [subprocess.Popen(command, env=dict(env, RANK=str(r), LOCAL_RANK=str(r)), stdout=logs[r], stderr=subprocess.STDOUT)
                 for r in range(size)]
        end = time.monotonic() + 120
        while any(ranks[r].poll() is None for r in others) and time.monotonic() < end:
            time.sleep(0.05)
        codes = [ranks[r].poll() for r in others]
        if fault in ("stopped", "skips a step"):
            ranks[1].kill()
        try:
            ranks[1].wait(timeout=30)
        except subprocess.TimeoutExpired:
            pass
        stayed = [r for r in range(size) if ranks[r].poll() is None]
        for p in ranks:
            if p.poll() is None:
                p.kill()
            p.wait()
        texts = []
        for log in logs:
            log.seek(0)
            texts.append(log.read())
            log.close()
        return codes, [texts[r] for r in others], stayed


def problems_of(text, wanted):
    told = [line for line in text.splitlines() if "Error" in line and all(w in line for w in wanted)]
    if not told:
        return "no error names %s" % ", ".join(wanted), ""
    if not any(name in line for line in told for name in ("forward", "backward", "reduce", "connect", "window")):
        return "the error names no phase: %s" % told[0], ""
    return "", told[-1]


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    number = failed = 0
    for fault, size, wanted in CASES:
        sentence = "a rank that %s ends the run on the other%s, which %s told" % (
            {"other model": "has another model", "killed": "is killed", "stopped": "is stopped"}.get(fault, fault),
            *(("", "is") if size == 2 else ("s of both nodes", "are")))
        if only not in sentence:
            continue
        number += 1
        codes, texts, stayed = run(fault, size)
        problems = ["a rank ended with %s" % code for code in codes if code in (None, 0)]
        if stayed:
            problems.append("ranks %s did not end" % stayed)
        for text in texts:
            problem, told = problems_of(text, wanted)
            if problem:
                problems += [problem] + text.splitlines()[-12:]
        for problem in problems:
            print("# " + problem)
        failed += bool(problems)
        text = "" if problems else ": " + told[:300].replace("#", "")
        print("%s %d - %s%s" % ("not ok" if problems else "ok", number, sentence, text), flush=True)
    print("1..%d" % number)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
