"""The engine's schedules for ranks on several nodes, which groups of ranks of this host stand for: two levels, secondary shards, quantised
messages, units that stay gathered. Losses and weights against unsharded training on each rank, bytes against the plan of `explain`.

    python tests/train/schedule_test.py [TEXT]      only cases whose name holds TEXT
"""
import contextlib
import gc
import sys
import types

import torch
import torch.nn as nn
import torch.nn.functional as F

import _ranks
import fsdp2_test

NOTHING = dict(two_level=True, ranks_per_node=0, secondary_shard=False, quantize=None, keep_gathered=0)


class Square(nn.Module):
    """Sizes that leave no padding on 2 and 4 ranks: bytes are those of the plan exactly."""

    def __init__(self, layers=5):
        super().__init__()
        self.embed = nn.Embedding(128, 128)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(128, 256, bias=False), nn.GELU(), nn.Linear(256, 128, bias=False))
                                     for _ in range(layers)])
        self.head = nn.Linear(128, 128, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def build(kind):
    if kind != "square":
        return fsdp2_test.build(kind)
    torch.manual_seed(1)
    model = Square()
    return model, list(model.layers)


def plan(model, layers, bf16=False):
    """What explain says that a rank takes in one step, and how often it gathers."""
    import torch.distributed as dist

    from raylet_c.train import explain, settings
    from raylet_c.train.layout import choose

    options = settings.get()
    ranks = dist.get_world_size()
    element = 2 if bf16 else 4
    args = types.SimpleNamespace(ranks=ranks, way=choose(options, ranks, options.ranks_per_node or ranks), param_bytes=element,
                                 reduce_bytes=element, keep_gathered=sys.maxsize if options.keep_gathered == "auto" else options.keep_gathered)
    rows = explain.plan(explain.units_of(model, type(layers[0]).__name__, False), args)
    within, between = explain.bytes_of_step(rows, args)
    return dict(within=within, between=between, gathers=sum(r["gathers"] for r in rows), whole=sum(r["params"] for r in rows) * element)


def shard(model, layers, face):
    """(the sharded model, whether the engine runs it)."""
    if face == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in layers:
            fully_shard(layer)
        fully_shard(model)
        return model, lambda: hasattr(model._get_fsdp_state(), "_rc_root")
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    wrapped = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({type(layers[0])}), use_orig_params=face == "fsdp1_orig")
    return wrapped, lambda: wrapped._rc_root is not None


def full_weights(sharded, face):
    if face == "fsdp2":
        return {n: p.full_tensor() for n, p in sharded.named_parameters()}
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    with FSDP.summon_full_params(sharded):
        return {n.replace("_fsdp_wrapped_module.", ""): p.detach().clone() for n, p in sharded.named_parameters()}


def loss_of(model, kind, ids):
    logits = model(input_ids=ids).logits if kind in ("qwen2", "llama") else model(ids)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def node_order(grads, local):
    """The sum that two levels make: of the ranks of a node in their order, then of the nodes in theirs."""
    total = None
    for first in range(0, len(grads), local):
        node = grads[first]
        for g in grads[first + 1 : first + local]:
            node = node + g
        total = node if total is None else total + node
    return total


def train(kind="plain", face="fsdp2", steps=3, local=0, accumulate=1, sync=True, **options):
    """The engine under some options, and on each rank the same training without sharding. local: ranks that are summed first; 0: all.
    sync=False: the backward passes of a step but the last reduce nothing."""
    import torch.distributed as dist

    from raylet_c import train as ours

    gc.collect()
    ours.install(**{**NOTHING, **options})
    size, rank = dist.get_world_size(), dist.get_rank()
    model, layers = build(kind)
    whole = build(kind)[0]
    planned = plan(model, layers)
    sharded, on_engine = shard(model, layers, face)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (sharded, whole)]
    data = [torch.Generator().manual_seed(10 + r) for r in range(size)]
    losses, traffic = [], [ours.traffic()]
    for _ in range(steps):
        gathered = {}
        for micro in range(accumulate):
            batches = [torch.randint(0, 60, (2, 12), generator=g) for g in data]
            last = sync or micro == accumulate - 1
            if face == "fsdp2":
                sharded.set_requires_gradient_sync(last)
            with contextlib.nullcontext() if last or face == "fsdp2" else sharded.no_sync():
                loss = loss_of(sharded, kind, batches[rank])
                loss.backward()
            traffic.append(ours.traffic())
            grads = {} if sync or micro == 0 else grads
            for r in range(size):
                own = loss_of(whole, kind, batches[r])
                own.backward()
                if r == rank:
                    losses.append((loss.item(), own.item()))
                for name, p in whole.named_parameters():
                    of_ranks = grads.setdefault(name, [None] * size)
                    of_ranks[r] = p.grad if of_ranks[r] is None else of_ranks[r] + p.grad
                    p.grad = None
            for name, some in grads.items() if last else ():
                mean = node_order(some, local or size) / size
                gathered[name] = gathered[name] + mean if name in gathered else mean
        for name, p in whole.named_parameters():
            p.grad = gathered[name]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    weights = {n: (p, q.detach()) for (n, p), q in zip(full_weights(sharded, face).items(), whole.parameters())} if face != "fsdp1" else {}
    per_step = [{k: b[k] - a[k] for k in a} for a, b in zip(traffic, traffic[1:])]
    return {"losses": losses, "weights": weights, "ours": on_engine(), "traffic": per_step, "plan": planned}


def as_planned(results, most=None):
    """most: between nodes, of the bytes of all parameters, for each node."""
    _ranks.check_exact(results)
    for result in results:
        counted, planned = result["traffic"][-1], result["plan"]
        for name in ("within", "between", "gathers"):
            assert counted[name] == planned[name], "%s: %s, planned were %s" % (name, counted, planned)
        share = sum(r["traffic"][-1]["between"] for r in results) / 2 / planned["whole"]
        assert most is None or share <= most, "%.3f of the parameters' bytes come to a node" % share


def once_between(results):
    """The last step's two backward passes together have the bytes between nodes of the plan for one."""
    _ranks.check_exact(results)
    for result in results:
        crossed = [t["between"] for t in result["traffic"]]
        assert sum(crossed[-2:]) == result["plan"]["between"], "%s, planned were %d" % (crossed, result["plan"]["between"])


TWO = dict(ranks_per_node=2, local=2)
ALONE = dict(ranks_per_node=1, secondary_shard=True)
EXACT = [(4, "two levels, %s, %s" % (kind, face), dict(kind=kind, face=face, **TWO))
         for kind, face in [(k, "fsdp2") for k in ("plain", "odd", "tied", "qwen2")] + [("plain", "fsdp1"), ("odd", "fsdp1_orig")]]
EXACT += [(4, "two levels, secondary shard, %s, %s" % (kind, face), dict(kind=kind, face=face, secondary_shard=True, **TWO))
          for kind, face in (("qwen2", "fsdp2"), ("deep", "fsdp2"), ("odd", "fsdp1_orig"))]
EXACT += [(2, "secondary shard of nodes with one rank, %s" % kind, dict(kind=kind, **ALONE)) for kind in ("odd", "tied", "deep")]
EXACT += [(ranks, "two levels, secondary shard, 2 backward passes a step", dict(kind="deep", accumulate=2, secondary_shard=True, **way))
          for ranks, way in ((4, TWO), (2, dict(ranks_per_node=1)))]
EXACT += [(ranks, "units that stay gathered, %s, %s" % (kind, face), dict(kind=kind, face=face, keep_gathered="auto", steps=5))
          for ranks, kind, face in ((2, "deep", "fsdp2"), (2, "odd", "fsdp1"), (4, "qwen2", "fsdp2"), (2, "plain", "fsdp1_orig"))]
# The first numbers are the parameters' bytes that come to each of two nodes, at most.
PLANNED = [(1.5, "two levels", TWO), (1.0, "two levels, secondary shard", dict(secondary_shard=True, **TWO)),
           (1.5, "two levels, some units stay gathered", dict(keep_gathered=600 << 10, steps=5, **TWO)),
           (1.0, "two levels, all units stay gathered", dict(keep_gathered="auto", steps=5, **TWO))]
PLANNED = [(most, "%s, %s" % (name, face), dict(kind="square", face=face, **kwargs)) for most, name, kwargs in PLANNED
           for face in ("fsdp2", "fsdp1_orig")]


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    summed = [(ranks, face, dict(kind="square", face=face, accumulate=2, sync=False, secondary_shard=True, **way))
              for ranks, way in ((2, dict(ranks_per_node=1)), (4, TWO)) for face in ("fsdp2", "fsdp1_orig")]
    for ranks in (2, 4):
        cases = [("%d ranks, %s: bit for bit an unsharded run" % (n, name), _ranks.check_exact, (), kwargs) for n, name, kwargs in EXACT if n == ranks]
        cases += [("4 ranks, %s: the bytes of the plan, %.1f of the parameters' between nodes" % (name, most), as_planned, (most,), kwargs)
                  for most, name, kwargs in PLANNED if ranks == 4]
        cases += [("%d ranks, secondary shard, %s: passes whose gradients are summed up are gathered between nodes once" % (n, face), once_between, (),
                   kwargs) for n, face, kwargs in summed if n == ranks]
        cases = [c for c in cases if only in c[0]]
        results = _ranks.run("schedule_test:train", ranks, True, [c[-1] for c in cases], timeout=400) if cases else ()
        for (sentence, check, arguments, _), result in zip(cases, results):
            tap.check(sentence, check, result, *arguments)
    tap.end()


if __name__ == "__main__":
    main()
