"""The engine's schedules for ranks on several nodes, which groups of ranks of this host stand for: two levels, secondary shards, quantised
messages, units that stay gathered. Losses and weights against unsharded training on each rank, bytes against the plan of `explain`.

    python tests/train/schedule_test.py [TEXT]      only cases whose name holds TEXT
"""
import gc
import sys

import torch
import torch.nn.functional as F

import _ranks
import fsdp2_test

NOTHING = dict(two_level=True, ranks_per_node=0, secondary_shard=False, quantize=None, keep_gathered=0)


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


def train(kind="plain", face="fsdp2", steps=3, local=0, accumulate=1, **options):
    """The engine under some options, and on each rank the same training without sharding. local: ranks that are summed first; 0: all."""
    import torch.distributed as dist

    from raylet_c import train as ours

    gc.collect()
    ours.install(**{**NOTHING, **options})
    size, rank = dist.get_world_size(), dist.get_rank()
    model, layers = fsdp2_test.build(kind)
    whole = fsdp2_test.build(kind)[0]
    sharded, on_engine = shard(model, layers, face)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (sharded, whole)]
    data = [torch.Generator().manual_seed(10 + r) for r in range(size)]
    losses, traffic = [], []
    for _ in range(steps):
        gathered = {}
        for micro in range(accumulate):
            batches = [torch.randint(0, 60, (2, 12), generator=g) for g in data]
            loss = loss_of(sharded, kind, batches[rank])
            loss.backward()
            traffic.append(ours.traffic())
            grads = {}
            for r in range(size):
                own = loss_of(whole, kind, batches[r])
                own.backward()
                if r == rank:
                    losses.append((loss.item(), own.item()))
                for name, p in whole.named_parameters():
                    grads.setdefault(name, []).append(p.grad)
                    p.grad = None
            for name, some in grads.items():
                mean = node_order(some, local or size) / size
                gathered[name] = gathered[name] + mean if name in gathered else mean
        for name, p in whole.named_parameters():
            p.grad = gathered[name]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    weights = {n: (p, q.detach()) for (n, p), q in zip(full_weights(sharded, face).items(), whole.parameters())} if face != "fsdp1" else {}
    per_step = [{k: b[k] - a[k] for k in a} for a, b in zip(traffic, traffic[1:])]
    return {"losses": losses, "weights": weights, "ours": on_engine(), "traffic": per_step}


def exact(results):
    if isinstance(results, Exception):
        raise results
    for result in results:
        assert result["ours"], "the run was not the engine's"
        for ours, oracle in result["losses"]:
            assert ours == oracle, "losses differ: %s" % result["losses"]
        for name, (ours, oracle) in result["weights"].items():
            assert torch.equal(ours, oracle), "weight %s differs by %g" % (name, (ours - oracle).abs().max())


TWO = dict(ranks_per_node=2, local=2)
EXACT = [(4, "two levels, %s, %s" % (kind, face), dict(kind=kind, face=face, **TWO))
         for kind, face in [(k, "fsdp2") for k in ("plain", "odd", "tied", "qwen2")] + [("plain", "fsdp1"), ("odd", "fsdp1_orig")]]


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    for ranks in (2, 4):
        cases = [("%d ranks, %s: bit for bit an unsharded run" % (n, name), kwargs) for n, name, kwargs in EXACT if n == ranks]
        cases = [c for c in cases if only in c[0]]
        results = _ranks.run("schedule_test:train", ranks, True, [k for _, k in cases]) if cases else ()
        for (sentence, _), result in zip(cases, results):
            tap.check(sentence, exact, result)
    tap.end()


if __name__ == "__main__":
    main()
