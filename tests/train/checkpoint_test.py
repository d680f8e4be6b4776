"""Checkpoints of models on the engine: what torch.distributed.checkpoint and torch.save write and read is what they do with torch's own run
time, also across the two and across numbers of ranks; and a deleted model leaves no memory behind.

    python tests/train/checkpoint_test.py [TEXT]      only cases whose name holds TEXT
"""
import copy
import gc
import io
import os
import sys
import tempfile
import traceback

import torch

import _ranks
from methods_test import Steps, served, weights
from optim_test import same, sharded, whole

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
                                                     set_optimizer_state_dict)


def states(run, **options):
    options = StateDictOptions(**options)
    return {"model": get_model_state_dict(run.model, options=options),
            "optimizer": get_optimizer_state_dict(run.model, run.opt, options=options)}


def apply(run, state, **options):
    options = StateDictOptions(**options)
    set_model_state_dict(run.model, state["model"], options=options)
    set_optimizer_state_dict(run.model, run.opt, state["optimizer"], options=options)


def plain(value):
    """Numbers of a state dict, DTensors whole."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return whole(value)


def start(optimizer="adamw"):
    model = sharded("odd")
    make = {"adamw": lambda p: torch.optim.AdamW(p, lr=1e-2), "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)}[optimizer]
    return Steps(model, make(model.parameters()))


def save(folder, optimizer="adamw", steps=3):
    run = start(optimizer)(steps)
    dcp.save(states(run), checkpoint_id=folder)
    return run.result(state=plain(states(run)))


def load(folder, optimizer="adamw", before=0, after=2):
    """before: steps of the model that loads, before it does."""
    run = start(optimizer)(before)
    state = states(run)
    dcp.load(state, checkpoint_id=folder)
    apply(run, state)
    found = plain(states(run))
    run.data.manual_seed(77 + dist.get_rank())
    run(after)
    return {"found": found, "losses": run.losses[before:], "weights": weights(run.model), "served": served(run.model)}


def full(cpu_offload=False, broadcast=False, optimizer="adamw", before=0):
    """Whole state dicts from one run to another, on every rank or read by rank 0 alone."""
    run = start(optimizer)(3)
    state = states(run, full_state_dict=True, cpu_offload=cpu_offload)
    seen = plain(state)
    if cpu_offload and not broadcast:  # rank 0 alone has it then; without broadcast_from_rank0 all ranks need it
        every = [state]
        dist.broadcast_object_list(every, 0)
        state = every[0]
    other = start(optimizer)(before)
    apply(other, copy.deepcopy(state), full_state_dict=True, broadcast_from_rank0=broadcast)
    other.data.manual_seed(77)
    other(2)
    return other.result(seen=seen)


def by_hand():
    """torch.save of state_dict() on every rank: only what is the rank's is in the file, and it comes back."""
    run = start()(3)
    file = io.BytesIO()
    torch.save({"model": run.model.state_dict(), "optimizer": run.opt.state_dict()}, file)
    size = len(file.getvalue())
    one = io.BytesIO()
    torch.save(run.model.state_dict()["head.weight"], one)
    run(2)
    file.seek(0)
    state = torch.load(file, weights_only=False)
    run.model.load_state_dict(state["model"])
    run.opt.load_state_dict(state["optimizer"])
    run.data.manual_seed(77)
    run(2)
    return run.result(size=size // 20000, one=len(one.getvalue()) // 2000)


def copied():
    """deepcopy of both state dicts stays as it was, and shares nothing."""
    run = start()(2)
    kept = copy.deepcopy({"model": run.model.state_dict(), "optimizer": run.opt.state_dict()})
    before = plain(kept)
    run(2)
    after = plain(kept)
    same(before, after, "the copy", 0)
    run.model.load_state_dict(kept["model"])
    run.opt.load_state_dict(kept["optimizer"])
    run.data.manual_seed(77)
    run(2)
    return run.result(before=before)


def meta(folder):
    from torch.distributed.fsdp import fully_shard

    from fsdp2_test import build

    with torch.device("meta"):
        model, layers = build("odd")
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device="cpu")
    run = Steps(model)
    state = states(run)
    dcp.load(state, checkpoint_id=folder)
    apply(run, state)
    run.data.manual_seed(77)
    return run(2).result()


def maps():
    with open("/proc/self/maps") as lines:
        return [line for line in lines if "/dev/shm" in line or "memfd:" in line or "(deleted)" in line]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def deleted(rounds=20):
    """Models come and go: mappings and memory stay as they were after the first ones."""
    seen = []
    for i in range(rounds):
        run = start()(2)
        ok = served(run.model)
        del run
        gc.collect()
        seen.append((len(maps()), resident()))
    return {"served": ok, "maps": [m for m, _ in seen], "resident": [r for _, r in seen]}


def call(function, kwargs):
    try:
        return globals()[function](**kwargs)
    except Exception:
        return {"error": traceback.format_exc()}
    finally:
        gc.collect()


class Runs:
    """What all cases ask for, each once, with one start of the processes for each run time and number of ranks."""

    def __init__(self):
        self.asked, self.results = {}, {}

    def ask(self, ranks, ours, function, **kwargs):
        key = ranks, ours, function, tuple(sorted(kwargs.items()))
        self.asked.setdefault((ranks, ours), []).append(key)
        return key

    def go(self):
        for (ranks, ours), keys in self.asked.items():
            keys = [k for k in dict.fromkeys(keys) if k not in self.results]
            calls = [dict(function=k[2], kwargs=dict(k[3])) for k in keys]
            self.results.update(zip(keys, _ranks.run("checkpoint_test:call", ranks, ours, calls, timeout=150)))

    def result(self, key):
        result = self.results[key]
        if isinstance(result, Exception):
            raise result
        for r in result:
            if "error" in r:
                raise AssertionError("%s, %s: %s" % (key[2], "ours" if key[1] else "torch", r["error"]))
            assert r.get("served", key[1]) == key[1], "the wrong one ran it"
        return [{k: v for k, v in r.items() if k != "served"} for r in result]


def both(function, **kwargs):
    """The same from both run times."""

    def ask(runs, folder):
        keys = [runs.ask(2, ours, function, **kwargs) for ours in (False, True)]
        return (lambda: None), (lambda: same(*map(runs.result, keys), function, 0))

    return ask


def across(saver, loader, saver_ranks=2, loader_ranks=2, optimizer="adamw", before=0):
    """What one saves is what the other finds, and both go on with the same numbers as torch's own."""

    def ask(runs, folder):
        where = os.path.join(folder, "%s-%d-%s" % (saver, saver_ranks, optimizer))
        saved = runs.ask(saver_ranks, saver, "save", folder=where, optimizer=optimizer)
        loads = []

        def later():
            loads.append(runs.ask(loader_ranks, loader, "load", folder=where, optimizer=optimizer, before=before))
            loads.append(runs.ask(loader_ranks, False, "load", folder=where, optimizer=optimizer, before=0))

        def check():
            found, expected = map(runs.result, loads)
            same(runs.result(saved)[0]["state"], found[0]["found"], "what was loaded", 0)
            same(expected, found, "two steps later", 0 if loader_ranks == 2 else 1e-4)

        return later, check

    return ask


def meta_start(runs, folder):
    where, keys = os.path.join(folder, "True-2-adamw"), []
    runs.ask(2, True, "save", folder=where, optimizer="adamw")
    return (lambda: keys.extend(runs.ask(2, ours, "meta", folder=where) for ours in (False, True))), (
        lambda: same(*map(runs.result, keys), "meta", 0))


def leaves_nothing(runs, folder):
    key = runs.ask(2, True, "deleted")

    def check():
        for r in runs.result(key):
            assert r["maps"][-1] <= r["maps"][2], "mappings: %s" % r["maps"]
            assert r["resident"][-1] - r["resident"][2] < 8 << 20, "resident bytes: %s" % r["resident"]

    return (lambda: None), check


CASES = [
    ("saved by ours, loaded by ours", across(True, True)),
    ("saved by torch's own, loaded by ours", across(False, True)),
    ("saved by ours, loaded by torch's own", across(True, False)),
    ("saved by ours on 2 ranks, loaded by ours on 3", across(True, True, 2, 3)),
    ("saved by torch's own on 3 ranks, loaded by ours on 2", across(False, True, 3, 2)),
    ("loaded in the middle of training", across(True, True, before=2)),
    ("sgd with momentum", across(True, True, optimizer="sgd")),
    ("whole state dicts", both("full")),
    ("whole state dicts, cpu_offload", both("full", cpu_offload=True)),
    ("whole state dicts, broadcast_from_rank0", both("full", broadcast=True, cpu_offload=True)),
    ("whole state dicts in the middle of training", both("full", before=2)),
    ("torch.save and torch.load on each rank", both("by_hand")),
    ("deepcopy of state dicts", both("copied")),
    ("meta device, to_empty, dcp.load", meta_start),
    ("deleted models leave nothing", leaves_nothing),
]


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    cases = [c for c in CASES if only in c[0]]
    runs = Runs()
    with tempfile.TemporaryDirectory() as folder:
        steps = [ask(runs, folder) for _, ask in cases]
        runs.go()
        for later, _ in steps:
            later()
        runs.go()
    tap = _ranks.Tap()
    for (sentence, _), (_, check) in zip(cases, steps):
        tap.check(sentence, check)
    tap.end()


if __name__ == "__main__":
    main()
