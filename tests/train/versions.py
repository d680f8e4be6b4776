"""The short set of versions.sh: cases of the other tests of this folder, on 2 ranks, in one set of processes for each run time.

    python tests/train/versions.py [TEXT]      only cases whose name holds TEXT
"""
import gc
import importlib
import sys
import traceback

import torch

import _ranks
import fsdp1_test
import fsdp2_test
import methods_test
import optim_test

FSDP2 = ("odd sizes", "tied weights", "lora", "bf16 mixed, f32 reduce", "not resharded after forward", "activation checkpoints", "clipping",
         "accumulation, bf16 mixed, f32 reduce", "sgd, gradients zeroed in place", "nested units", "evaluation between steps")
ALONE = ("odd", "tied")  # the engine against a run without sharding: where torch's own fully_shard is no oracle, this is
FSDP1 = ("whole model", "odd sizes", "bf16 mixed", "SHARD_GRAD_OP, no_sync", "activation checkpoints", "clipping", "no_sync",
         "full state dicts", "full parameters read and written", "gradients held by the user", "frozen and thawed",
         "an exception in forward", "lora, no_sync", "sharded state dicts")
FSDP1 += tuple(name + ", original parameters" for name in FSDP1) + ("NO_SHARD",)
METHODS = ("two forward passes, one backward pass", "accumulation, set_reshard_after_backward",
           "parameters without gradients in some steps", "unshard and reshard by hand", "register_fsdp_forward_method", "load_state_dict",
           "an exception in backward, reset_iter_state", "left to torch: CPU offload")
OPTIM = ("adamw, defaults", "sgd, momentum=0.9", "adamw, fused=True", "adamw, lora", "adamw, reload", "clipping, norm 2 to 0.5")
# Public names that a release has not: their cases cannot run there.
SINCE = {"an exception in backward, reset_iter_state": (2, 10)}
# Torch's own fully_shard needs a GPU before 2.7, and over gloo it sums gradients up to 2.8; 2.9, and all on GPUs, take the mean.
NO_ORACLE = torch.__version__ < (2, 9)


def call(test, function, kwargs):
    """In the ranks' processes: an exception that all of them meet is a result, so that later cases still run."""
    try:
        return getattr(importlib.import_module(test), function)(**kwargs)
    except Exception:
        return {"error": traceback.format_exc()}
    finally:
        gc.collect()


def cases():
    """(sentence, what the ranks of torch's own run or None, what ours run, check(stock's results, ours))"""
    for name, kwargs in fsdp2_test.CASES:
        if name in FSDP2 and not NO_ORACLE:
            what = dict(test="fsdp2_test", function="train", kwargs=kwargs)
            yield "fully_shard, " + name, what, what, lambda a, b, k=kwargs: fsdp2_test.compare(2, k, a, b)
    for kind in ALONE:
        yield (fsdp2_test.order_sentence(2, kind), None, dict(test="fsdp2_test", function="rank_order", kwargs=dict(kind=kind)),
               lambda a, b: _ranks.check_exact(b))
    for name, _, function, kwargs in methods_test.CASES:
        if name in METHODS and not NO_ORACLE and torch.__version__ >= SINCE.get(name, (2, 6)):
            what = dict(test="methods_test", function=function.__name__, kwargs=kwargs)
            yield "fully_shard, " + name, what, what, lambda a, b, n=name: methods_test.compare(n, 2, a, b)
    for name, kwargs in optim_test.CASES:
        if name in OPTIM and not NO_ORACLE:
            what = dict(test="optim_test", function="train", kwargs=kwargs)
            yield name, what, what, lambda a, b, k=kwargs: optim_test.compare(k, a, b)
    for name, kwargs, *stock in fsdp1_test.CASES:
        if name in FSDP1:
            ours = dict(test="fsdp1_test", function="train", kwargs=kwargs)
            ranks = 3 if "clip" in kwargs and NO_ORACLE else 2  # a norm of these depends on where in memory a gradient lies: rounding
            yield ("FullyShardedDataParallel, " + name, dict(ours, kwargs={**kwargs, **(stock[0] if stock else {})}), ours,
                   lambda a, b, k=kwargs, n=ranks: fsdp1_test.compare(n, k, a, b))


def check(compare, stock, ours):
    for name, results in (("torch", stock or ()), ("ours", ours)):
        if isinstance(results, Exception):
            raise results
        for result in results:
            if "error" in result:
                raise AssertionError("%s: %s" % (name, result["error"]))
    compare(stock, ours)


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    todo = [c for c in cases() if only in c[0]]
    stock = iter(_ranks.run("versions:call", 2, False, [c[1] for c in todo if c[1]], timeout=600))
    ours = _ranks.run("versions:call", 2, True, [c[2] for c in todo], timeout=600)
    for (sentence, asked, _, compare), b in zip(todo, ours):
        tap.check(sentence, check, compare, next(stock) if asked else None, b)
    tap.end()


if __name__ == "__main__":
    main()
