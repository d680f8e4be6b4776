"""What users of sharded training met, as tests that need no GPU: README.md in this folder has the table.

    python tests/train/reports_test.py [TEXT]      only cases whose name holds TEXT
"""
import ctypes
import datetime
import gc
import os
import sys
import time
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F

import _ranks
from corners_test import CPU, FACES, NAMES, check, served, weights, wrap
from fsdp2_test import Lora, Plain


def data(step, rank):
    return torch.randint(0, 60, (2, 8), generator=torch.Generator().manual_seed(1000 * step + rank))


def loss_of(model, ids):
    logits = model(ids)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def ranks():
    import torch.distributed as dist

    return dist.get_rank(), dist.get_world_size()


def mean_loss(model, step, size):
    """Of one process that has all ranks' data."""
    return sum(loss_of(model, data(step, r)) for r in range(size)) / size


class Tied(nn.Module):
    """A language model whose two embeddings are one weight of a size that no number of ranks divides."""

    def __init__(self, vocab=1001, width=8):
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(vocab, width)
        self.mid = nn.Linear(width, width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.mid(self.embed(ids))))


def tied(face):
    """B01: every row of the shared weight trains, and as in one process."""
    rank, size = ranks()
    before, alone = Tied().embed.weight.detach(), Tied()
    model = wrap(Tied(), face)
    opts = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (model, alone)]
    for step in range(20):
        loss_of(model, data(step, rank)).backward()
        mean_loss(alone, step, size).backward()
        for opt in opts:
            opt.step()
            opt.zero_grad()
    ok = served(model, face)
    got = weights(model, face)["embed.weight"]
    return {"served": ok, "still": int((got == before).all(1).sum()), "off": (got - alone.embed.weight).abs().max().item()}


def check_tied(results):
    for r in results:
        assert r["served"] and r["still"] == 0 and r["off"] < 1e-5, r


def clipped(how):
    """B05: the norms of clipping and the weights after 50 clipped steps are those of one process, however it is sharded."""
    import torch.distributed as dist
    from torch.distributed.fsdp import ShardingStrategy

    rank, size = ranks()
    face, _, mode = how.partition(" ")
    face = int(face) if face.isdigit() else face
    torch.manual_seed(2)
    model = Plain(odd=True, tied=True, layers=4)
    torch.manual_seed(2)
    alone = Plain(odd=True, tied=True, layers=4)
    if face == 2:
        options = {}
    else:
        options = {"sharding_strategy": ShardingStrategy[mode]}
    if mode == "HYBRID_SHARD":
        mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
        options["mesh" if face == 2 else "device_mesh"] = mesh
    model = wrap(model, face, list(model.layers), **options)
    opts = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, alone)]
    norms = []
    for step in range(50):
        loss_of(model, data(step, rank)).backward()
        mean_loss(alone, step, size).backward()
        limit, kind = ((0.5, 2.0), (0.05, float("inf")))[step % 2]
        clip = model.clip_grad_norm_ if face != 2 else lambda *a: nn.utils.clip_grad_norm_(model.parameters(), *a)
        norm = clip(limit, kind)
        norms.append(((norm.full_tensor() if face == 2 else norm).item(), nn.utils.clip_grad_norm_(alone.parameters(), limit, kind).item()))
        for opt in opts:
            opt.step()
            opt.zero_grad()
    ok = served(model, face)
    got = weights(model, face)
    off = max((got[k] - v).abs().max().item() for k, v in alone.state_dict().items())
    return {"served": ok or mode == "NO_SHARD", "norms": norms, "off": off}


def check_clipped(results):
    for r in results:
        assert r["served"] and all(abs(a - b) <= 1e-4 * b for a, b in r["norms"]) and r["off"] < 1e-4, r


def whole_state(face):
    """B23: a full state of a model with a frozen part, on the CPU of rank 0 only, loads into the plain model."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

    rank, _ = ranks()

    def build():
        torch.manual_seed(2)
        model = Plain(odd=True)
        for p in model.layers[0].parameters():
            p.requires_grad_(False)
        return model

    model, plain = build(), build()
    model = wrap(model, face, list(model.layers))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(2):
        loss_of(model, data(step, rank)).backward()
        opt.step()
        opt.zero_grad()
        if face == 2:
            state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        else:
            with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT,
                                                          FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
                state = model.state_dict()
    got = model(data(9, 0)).detach()
    if rank:
        return {"served": served(model, face), "equal": not state}
    plain.load_state_dict(state)
    return {"served": served(model, face), "equal": torch.equal(plain(data(9, 0)), got)}


def check_whole(results):
    for r in results:
        assert r["served"] and r["equal"], r


def lone_state(seconds):
    """B23 with fully_shard: rank 0 asks alone, rank 1 goes on with training."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.device_mesh import DeviceMesh

    rank, _ = ranks()
    torch.manual_seed(2)
    group = dist.new_group(timeout=datetime.timedelta(seconds=seconds))
    model = wrap(Plain(), 2, mesh=DeviceMesh.from_group(group, "cpu"))
    loss_of(model, data(0, rank)).backward()
    begin, told = time.monotonic(), None
    try:
        if rank == 0:
            get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        else:
            loss_of(model, data(1, rank))
    except Exception as error:
        told = str(error)
    return {"told": told, "seconds": time.monotonic() - begin, "limit": seconds}


def check_lone(results):
    for r in results:
        assert r["told"] and r["seconds"] < 6 * r["limit"], r


def adapters(face):
    """B30: adapters beside frozen weights, one unit for each block: gradients for what trains, and nothing else moves."""
    torch.manual_seed(2)
    model = Plain(layers=3)
    for layer in model.layers:
        layer.up, layer.down = Lora(layer.up, 1), Lora(layer.down, 1)
    for name, p in model.named_parameters():
        p.requires_grad_(name.endswith((".a", ".b")))
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    share = sum(p.numel() for p in model.parameters() if p.requires_grad) / sum(p.numel() for p in model.parameters())
    try:
        model = wrap(model, face, list(model.layers))
    except Exception as error:
        return {"refused": str(error)}
    rank, _ = ranks()
    before = weights(model, face)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss_of(model, data(0, rank)).backward()
    root = model._get_fsdp_state()._rc_root if face == 2 else model._rc_root
    grads = {n.replace("_fsdp_wrapped_module.", "") for n, p in model.named_parameters() if p.grad is not None}
    size = sum(u.grad.untyped_storage().size() for u in root.model.units)
    opt.step()
    opt.zero_grad()
    after = weights(model, face)
    states = sum(s["exp_avg"].numel() for s in opt.state.values() if "exp_avg" in s)
    return {"share": share, "grads": grads - trained, "bytes": size, "limit": sum(before[n].numel() for n in trained) * 4 + 4 * 1024,
            "states": states, "all": sum(before[n].numel() for n in trained),
            "moved": {n for n in before if not torch.equal(before[n], after[n])}, "trained": trained}


def check_adapters(results):
    for r in results:
        assert "refused" not in r, r["refused"]
        assert r["share"] < 0.1 and not r["grads"] and r["bytes"] <= r["limit"] and r["states"] <= r["all"], r
        assert r["moved"] <= r["trained"], "frozen weights moved: %s" % (r["moved"] - r["trained"])
    assert results[0]["moved"], "nothing moved"


def check_uniform(results):
    for r in results:
        assert "requires_grad" in r.get("refused", "") and "use_orig_params=False" in r["refused"], r


def shared_memory():
    """This process's share of the memory that it has, shared pages counted once over all processes."""
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def rounds(face):
    """B38: a model from one file that ranks map, trained and deleted, three times: the memory of all ranks, (at the peak, afterwards)."""
    import torch.distributed as dist

    rank, _ = ranks()
    path = os.path.join(os.environ["RANKS_FOLDER"], "model-%s.pt" % face)

    def build():
        return nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(4)))  # 16 MB

    if rank == 0:
        torch.save(build().state_dict(), path)
    dist.barrier()

    def summed():
        ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later is not in use
        dist.barrier()
        total = torch.tensor([float(shared_memory())])
        dist.all_reduce(total)
        return total.item()

    seen = []
    for _ in range(3):
        with torch.device("meta"):
            model = build()
        model.load_state_dict(torch.load(path, mmap=True, weights_only=True), assign=True)
        model = wrap(model, face, list(model) if face == 2 else [])
        opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for _ in range(2):
            model(torch.ones(2, 1000)).sum().backward()
            opt.step()
            opt.zero_grad()
        peak = summed()
        ok = served(model, face)
        del model, opt
        gc.collect()
        seen.append((peak, summed()))
    return {"served": ok, "seen": seen}


def check_rounds(results):
    for r in results:
        assert r["served"], "the run was not the engine's"
        (peak, after), (last_peak, last_after) = r["seen"][0], r["seen"][2]
        assert last_peak <= peak + (8 << 20) and last_after <= after + (8 << 20), "bytes of all ranks: %s" % r["seen"]


class Filtered(nn.Module):
    def __init__(self, seen, norm):
        super().__init__()
        torch.manual_seed(2)
        self.register_buffer("kernel", torch.ones(6, 1, 3) / 3)
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()  # which wants its buffers in the type of its parameters
        self.lin = nn.Linear(16, 16)
        self.seen = seen

    def forward(self, x):
        types = {str(b.dtype) for b in self.buffers() if b.is_floating_point()}
        self.seen.append({"weight": str(self.lin.weight.dtype), "buffers": sorted(types)})
        x = F.conv1d(x, self.kernel.to(x.dtype), padding=1, groups=6)
        return self.lin(self.norm(x))


def buffers(orig, buffer_dtype):
    """B43: types in forward, stored types, losses, for a mixed precision with or without a type of buffers; and the losses without it."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    rank, _ = ranks()
    result = {}
    for name, dtype in (("mixed", torch.bfloat16), ("full", None)):
        seen, losses, grads = [], [], set()
        of_buffers = buffer_dtype and getattr(torch, buffer_dtype)
        mp = MixedPrecision(param_dtype=dtype, reduce_dtype=torch.float32, buffer_dtype=of_buffers) if dtype else None
        model = Filtered(seen, buffer_dtype == "bfloat16")
        model = FullyShardedDataParallel(model, device_id=CPU, use_orig_params=orig, mixed_precision=mp)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            x = torch.randn(4, 6, 16, generator=torch.Generator().manual_seed(10 * step + rank))
            loss = model(x).float().square().mean()
            loss.backward()
            grads |= {str(p.grad.dtype) for p in model.parameters() if p.grad is not None}
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
        stored = sorted({str(p.dtype) for p in model.parameters()})
        result[name] = {"types": seen, "losses": losses, "stored": stored, "grads": sorted(grads),
                        "weights": weights(model, 1), "served": served(model, 1)}
    return result


def check_buffers(wanted):
    def judge(stock, results):
        for a, b in zip(stock, results):
            assert b["mixed"].pop("served") and not a["mixed"].pop("served")
            x, y = a["mixed"].pop("weights"), b["mixed"].pop("weights")
            assert all(torch.equal(x[k], y[k]) and x[k].dtype == y[k].dtype for k in x), "weights differ"
            assert a["mixed"] == b["mixed"], (a["mixed"], b["mixed"])
            assert all(t == {"weight": "torch.bfloat16", "buffers": [wanted]} for t in b["mixed"]["types"]), b["mixed"]["types"]
            assert b["mixed"]["stored"] == b["mixed"]["grads"] == ["torch.float32"], b["mixed"]
            assert all(abs(p - q) < 0.05 * q for p, q in zip(b["mixed"]["losses"], b["full"]["losses"])), b

    return judge


def call(function, kwargs):
    """In the ranks' processes: an exception that all of them meet is a result, so that later cases still run."""
    try:
        return globals()[function](**kwargs)
    except Exception:
        return {"error": traceback.format_exc()}
    finally:
        gc.collect()


# (ranks, sentence, function, arguments, check; of torch's and ours when it is of check_buffers)
CASES = [(4, "B01, %s: every row of a tied embedding trains, as in one process" % NAMES[f], tied, dict(face=f), check_tied) for f in FACES]
CASES += [(4, "B05, %s: the norms of one process, and its weights after 50 clipped steps" % how, clipped, dict(how=how), check_clipped)
          for how in ("2 FULL_SHARD", "2 HYBRID_SHARD", "1 FULL_SHARD", "1o FULL_SHARD", "1o HYBRID_SHARD", "1 NO_SHARD")]
for f in FACES:
    CASES += [
        (2, "B23, %s: the full state on rank 0 loads into the plain model" % NAMES[f], whole_state, dict(face=f),
         check_whole),
        (2, "B30, %s: adapters beside frozen weights" % NAMES[f] if f != 1 else
         "B30, FullyShardedDataParallel with flat parameters refuses units that are frozen in part, as torch's own", adapters, dict(face=f),
         check_uniform if f == 1 else check_adapters),
        (2, "B38, %s: the third model of a process takes no more memory than the first" % NAMES[f], rounds, dict(face=f), check_rounds),
    ]
CASES += [(2, "B43%s, buffers in %s: torch's types, losses and weights" % (", original parameters" if orig else "", of or "no type"),
           buffers, dict(orig=orig, buffer_dtype=of), check_buffers("torch." + (of or "float32")))
          for orig, of in ((False, "bfloat16"), (True, "bfloat16"), (True, "float32"), (True, None))]
CASES += [(2, "B23, fully_shard: a full state that rank 0 asks for alone is an error on all ranks, within the timeout", lone_state,
           dict(seconds=5), check_lone)]


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    # Ranks that left one alone are of no use afterwards, and in used ones torch's gather does not keep its group's timeout.
    for size, alone in ((2, False), (2, True), (4, False)):
        cases = [c for c in CASES if c[0] == size and only in c[1] and (c[2] is lone_state) == alone]
        calls = [dict(function=f.__name__, kwargs=kwargs) for _, _, f, kwargs, _ in cases]
        both = [c["function"] == "buffers" for c in calls]
        stock = iter(_ranks.run("reports_test:call", size, False, [c for c, b in zip(calls, both) if b], timeout=600) if any(both) else ())
        mine = _ranks.run("reports_test:call", size, True, calls, timeout=900) if calls else ()
        for (_, sentence, _, _, judge), b, results in zip(cases, both, mine):
            tap.check(sentence, check, judge, next(stock) if b else None, results)
    tap.end()


if __name__ == "__main__":
    main()
