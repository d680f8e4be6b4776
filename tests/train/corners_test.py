"""What few train functions do, on both faces: growth over many steps, torch.func, parameters that come later, groups and models that
come and go, install() late, double backward, exceptions, gradients of gradients. Against torch's own, or against a run without sharding.

    python tests/train/corners_test.py [TEXT]      only cases whose name holds TEXT
"""
import contextlib
import ctypes
import gc
import logging
import os
import sys
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils import _pytree

import _ranks
from fsdp2_test import Plain, build

CPU = torch.device("cpu")


def ours():
    return sys.argv[2] == "ours"


def wrap(model, face, layers=(), **options):
    """face: 2 for fully_shard, 1 for FullyShardedDataParallel, "1o" for that with use_orig_params."""
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    if face == 2:
        for layer in layers:
            fully_shard(layer, **options)
        return fully_shard(model, **options)
    policy = ModuleWrapPolicy({type(layer) for layer in layers}) if layers else None
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=CPU, use_orig_params=face == "1o", **options)


def wrapped(face, kind="odd"):
    return wrap(*(lambda model, layers: (model, face, layers))(*build(kind)))


def served(model, face):
    return hasattr(model._get_fsdp_state(), "_rc_root") if face == 2 else getattr(model, "_rc_root", None) is not None


def weights(model, face):
    from torch.distributed.fsdp import FullyShardedDataParallel

    if face != 2:
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            return {k: v.detach().clone() for k, v in model.state_dict().items()}
    return {k: (v.full_tensor() if hasattr(v, "full_tensor") else v).detach().clone() for k, v in model.state_dict().items()}


def batch(seed=0):
    import torch.distributed as dist

    return torch.randint(0, 60, (2, 12), generator=torch.Generator().manual_seed(100 * seed + dist.get_rank()))


def loss_of(model, ids):
    logits = model(ids)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def steps(model, opt, count, first=0):
    losses = []
    for i in range(first, first + count):
        loss = loss_of(model, batch(i))
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses


def adam(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)


class Tail(nn.Module):
    """Plain takes ids; this starts from floating point, for gradients of the input."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList([nn.Linear(9, 9), nn.Linear(9, 9), nn.Linear(9, 9)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def tail(face):
    model = Tail()
    if face is None:
        return model
    if face == 2:
        return wrap(model, 2, list(model.layers))
    return wrap(model, face, [model.layers[0]])


# Growth


def in_use():
    """Bytes that this process has from malloc and mmap, which is what a leak makes grow; the resident size has noise of its own."""

    class Info(ctypes.Structure):
        _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Info
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(face):
    """(Python objects, tensors, bytes in use, resident bytes) after some steps, every 50 of 200."""
    model = wrapped(face, "plain")
    opt = adam(model)
    seen = []
    for i in range(4):
        steps(model, opt, 50, 50 * i)
        gc.collect()
        objects = gc.get_objects()
        seen.append((len(objects), sum(isinstance(o, torch.Tensor) for o in objects), in_use(), resident()))
        del objects
    return {"seen": seen, "served": served(model, face)}


def flat(results):
    for r in results:
        assert r["served"], "the run was not the engine's"
        first, last = r["seen"][1], r["seen"][3]  # what the first steps make stays
        rise = [b - a for a, b in zip(first, last)]
        assert rise[0] <= 30 and rise[1] == 0, "objects and tensors grow: %s" % r["seen"]
        assert rise[2] <= 100 * 256, "memory in use grows by %g bytes a step: %s" % (rise[2] / 100, r["seen"])
        assert rise[3] <= 100 * 8192, "resident memory grows by %g bytes a step: %s" % (rise[3] / 100, r["seen"])


def remade(face, rounds=8):
    """Models come and go: (mappings, bytes in use, resident bytes) after each."""
    seen = []
    for _ in range(rounds):
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 700)), face)  # 4 MB and its gradients and states
        opt = adam(model)
        for _ in range(2):
            model(torch.ones(2, 700)).sum().backward()
            opt.step()
            opt.zero_grad()
        ok = served(model, face)
        del model, opt
        gc.collect()
        with open("/proc/self/maps") as lines:
            seen.append((sum("/dev/shm" in line or "memfd:" in line for line in lines), in_use(), resident()))
    return {"seen": seen, "served": ok}


def given_back(results):
    for r in results:
        assert r["served"], "the run was not the engine's"
        (maps, used, held), (maps_last, used_last, held_last) = r["seen"][2], r["seen"][-1]
        assert maps_last == maps and used_last - used < 1 << 20, "mappings and memory in use: %s" % r["seen"]
        assert held_last - held < 24 << 20, "resident bytes: %s" % r["seen"]  # one more model each time were 40 MB


# torch.func, gradients of gradients


def functional(face, what):
    """Numbers, and those of a model without sharding; or the error that this is not served by."""
    from torch.func import functional_call, grad, jvp, vmap

    model, plain = tail(face), tail(None)
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(5))
    run = {
        "functional_call": lambda m: functional_call(m, {}, (x,)),
        "grad of the input": lambda m: grad(lambda v: m(v).square().sum())(x),
        "jvp": lambda m: jvp(m, (x,), (torch.ones_like(x),)),
        "vmap": lambda m: vmap(m)(x),
    }[what]
    expected = run(plain)
    try:
        got = run(model)
    except Exception as error:
        got = error
    with contextlib.suppress(Exception):
        model(x)  # one forward pass may be lost with the error
    after = model(x)  # whatever came of it, the model works on
    after.sum().backward()
    plain(x).sum().backward()
    return {"expected": expected, "got": None if isinstance(got, Exception) else _pytree.tree_map(torch.Tensor.detach, got),
            "raised": repr(got)[:300], "after": (after.detach(), plain(x).detach())}


def close(a, b):
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(close, a, b))
    return torch.allclose(a, b, atol=1e-6)


def right_or_refused(results):
    for r in results:
        assert r["got"] is None or close(r["got"], r["expected"]), "%s instead of %s" % (r["got"], r["expected"])
        assert close(*r["after"]), "later forward passes are wrong"


def right(results):
    for r in results:
        assert r["got"] is not None, "refused: %s" % r["raised"]
    right_or_refused(results)


class Inner(torch.autograd.Function):
    """A backward pass with another one in it, as reentrant checkpoints have."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (inner,) = torch.autograd.grad(y.sin().sum(), y)
        return grad * inner


def nested_grad(face, how):
    """Steps with autograd.grad before, inside of or instead of the backward pass; the same without sharding."""
    result = {}
    for name, model in (("got", tail(face)), ("expected", tail(None))):
        params = list(model.parameters())
        opt = torch.optim.SGD(params, lr=0.1)
        seen = []
        for i in range(3):
            x = torch.randn(4, 9, generator=torch.Generator().manual_seed(i)).requires_grad_()
            out = model(Inner.apply(x) if how == "inside" else x)
            if how == "before":  # the gradient of the input first, then all of them
                (g,) = torch.autograd.grad(out.square().sum(), x, retain_graph=True)
                seen.append(g.clone())
            if how == "only":
                (g,) = torch.autograd.grad(out.square().sum(), x)
                seen.append(g.clone())
                continue
            out.square().sum().backward()
            seen.append(x.grad.clone())
            opt.step()
            opt.zero_grad()
        seen.append(model(torch.ones(2, 9)).detach())
        result[name] = seen
    return {**result, "raised": "", "after": (torch.zeros(1), torch.zeros(1))}




def create_graph(face):
    """backward(create_graph=True) and a penalty on the gradient; then a step without."""
    model = tail(face)
    x = torch.ones(3, 9)
    model(x).sum().backward()
    model.zero_grad()
    raised = None
    try:
        out = model(x.requires_grad_())
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        g.square().sum().backward()
    except Exception as error:
        raised = "%s: %s" % (type(error).__name__, error)
    model.zero_grad()
    if face == 2:
        model._get_fsdp_state()._rc_root.model.reset() if ours() and not hasattr(model, "reset_iter_state") else None
        reset = getattr(model, "reset_iter_state", None)
        reset and reset()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(3, 9)
    model(x).square().sum().backward()
    opt.step()
    plain = tail(None)
    plain(x).square().sum().backward()
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    return {"raised": raised, "after": (model(x).detach(), plain(x).detach())}


def refused(results):
    for r in results:
        assert "NotImplementedError: backward with create_graph=True is not served by raylet_c" in str(r["raised"]), r["raised"]
        assert close(*r["after"]), "the step after it is wrong: %s" % (r["after"],)


# What comes later


class Bomb(torch.autograd.Function):
    armed = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if Bomb.armed:
            raise ValueError("a bomb")
        return grad


def exploding(face, times):
    """An exception in the middle of some backward passes: later steps are as if those had not been. torch's own leaves them out."""
    model, layers = build("odd")
    layers[1].register_forward_hook(lambda module, args, out: Bomb.apply(out))
    model = wrap(model, face, layers)
    opt = adam(model)
    losses = steps(model, opt, 2)
    for _ in range(times if ours() else 0):
        Bomb.armed = True
        try:
            loss_of(model, batch(50)).backward()
            raise AssertionError("no exception")
        except ValueError:
            pass
        finally:
            Bomb.armed = False
        opt.zero_grad()
        losses += steps(model, opt, 1, 60)
    for _ in range(0 if ours() else times):
        losses += steps(model, opt, 1, 60)
    return {"losses": losses + steps(model, opt, 2, 70), "weights": weights(model, face), "served": served(model, face)}


def added(face, when):
    """A parameter and a module that the model gets after it was wrapped: every rank's own, as with torch's own."""
    model = wrapped(face)
    if when == "later":
        steps(model, adam(model), 2)
    torch.manual_seed(4)
    body = model if face == 2 else model.module
    body.scale = nn.Parameter(torch.tensor(1.5))
    body.more = nn.Linear(61, 61)
    head = body.head
    head.register_forward_hook(lambda module, args, out: body.more(out) * body.scale)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = steps(model, opt, 3, 5)
    own = [body.scale.detach().clone(), body.more.weight.detach().clone()]
    return {"losses": losses, "own": own, "served": served(model, face)}


def new_group(face):
    """The process group ends, a new one begins: new models run on it."""
    import torch.distributed as dist

    first = wrapped(face)
    losses = steps(first, adam(first), 2)
    rank, size = dist.get_rank(), dist.get_world_size()
    for i in range(2):
        dist.destroy_process_group()
        path = os.path.join(os.environ["RANKS_FOLDER"], "store-%s-%d" % (face, i))
        dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
        model = wrapped(face)
        losses += steps(model, adam(model), 2)
    return {"losses": losses, "weights": weights(model, face), "served": served(model, face)}


class Said(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def late(face, ran):
    """install() after a model was wrapped (and perhaps run) by torch, twice; then another model; then uninstall() twice."""
    from raylet_c import train

    said = Said()
    logging.getLogger("raylet_c.train").addHandler(said)
    if ours():
        train.uninstall()
    before = wrapped(face)
    opt = adam(before)
    losses = steps(before, opt, 2 if ran else 0)
    if ours():
        train.install()
        train.install()
    after = wrapped(face)
    losses += steps(before, opt, 2, 2) + steps(after, adam(after), 2)
    taken = served(after, face)
    if ours():
        train.uninstall()
        train.uninstall()
        assert not train.installed()
    last = wrapped(face)
    losses += steps(last, adam(last), 1) + steps(before, opt, 1, 8) + steps(after, adam(after), 2)  # it has gone back to torch
    if ours():
        train.install()
    logging.getLogger("raylet_c.train").removeHandler(said)
    return {"losses": losses, "weights": weights(before, face), "served": taken, "others": [served(m, face) for m in (before, after, last)],
            "said": said.lines}


def like_torch(stock, results):
    for a, b in zip(stock, results):
        assert b["served"] and not a["served"], "the wrong one ran it"
        for part in ("losses", "own", "weights"):
            x, y = a.get(part), b.get(part)
            if isinstance(x, dict):
                assert x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x), "weights differ"
            elif part == "own":
                assert x is None or all(map(torch.equal, x, y)), "later parameters differ: %s and %s" % (x, y)
            else:
                assert x == y, "losses differ: %s and %s" % (x, y)


def late_like_torch(stock, results):
    like_torch(stock, results)
    for r in results:
        assert not any(r["others"]), "after uninstall() all models are torch's: %s" % r["others"]
        assert len(r["said"]) <= 1, r["said"]


FACES = (2, 1, "1o")
NAMES = {2: "fully_shard", 1: "FullyShardedDataParallel", "1o": "FullyShardedDataParallel, original parameters"}
# (sentence, function, arguments, check of ours alone or of torch's and ours)
CASES = []
for face in FACES:
    name = NAMES[face] + ": "
    CASES += [
        (name + "200 steps take no more objects and memory than 100", growth, dict(face=face), flat),
        (name + "models that are deleted and made again give their memory back", remade, dict(face=face), given_back),
        (name + "torch.func.functional_call", functional, dict(face=face, what="functional_call"), right),
        (name + "torch.func.grad is right or refused", functional, dict(face=face, what="grad of the input"), right_or_refused),
        (name + "torch.func.jvp is right or refused", functional, dict(face=face, what="jvp"), right_or_refused),
        (name + "torch.func.vmap is right or refused", functional, dict(face=face, what="vmap"), right_or_refused),
        (name + "autograd.grad before the backward pass", nested_grad, dict(face=face, how="before"), right),
        (name + "autograd.grad inside of the backward pass", nested_grad, dict(face=face, how="inside"), right),
        (name + "autograd.grad instead of the backward pass", nested_grad, dict(face=face, how="only"), right),
        (name + "create_graph=True is refused, and the model works on", create_graph, dict(face=face), refused),
    ]
    if face != 2:  # methods_test.py has it for fully_shard, with reset_iter_state
        CASES.append((name + "exceptions in backward, then torch's numbers", exploding, dict(face=face, times=2), like_torch))
    CASES += [
        (name + "parameters added before the first step", added, dict(face=face, when="first"), like_torch),
        (name + "parameters added in the middle", added, dict(face=face, when="later"), like_torch),
        (name + "install() twice after a model was wrapped", late, dict(face=face, ran=False), late_like_torch),
        (name + "install() twice after a model has run", late, dict(face=face, ran=True), late_like_torch),
        (name + "the process group destroyed and made again", new_group, dict(face=face), like_torch),
    ]
AGAINST_TORCH = (like_torch, late_like_torch)


def call(function, kwargs):
    """In the ranks' processes: an exception that all of them meet is a result, so that later cases still run."""
    try:
        return globals()[function](**kwargs)
    except Exception:
        return {"error": traceback.format_exc()}
    finally:
        gc.collect()


def check(judge, stock, results):
    for each in (stock, results):
        if isinstance(each, Exception):
            raise each
        for r in each or ():
            if r.get("error"):
                raise AssertionError(r["error"])
    judge(*([stock] if stock else []), results)


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    cases = [c for c in CASES if only in c[0]]
    calls = [dict(function=f.__name__, kwargs=kwargs) for _, f, kwargs, _ in cases]
    stock = _ranks.run("corners_test:call", 2, False, [c for c, case in zip(calls, cases) if case[3] in AGAINST_TORCH], timeout=600)
    mine = _ranks.run("corners_test:call", 2, True, calls, timeout=900)
    stock = iter(stock)
    for (sentence, _, _, judge), results in zip(cases, mine):
        tap.check(sentence, check, judge, next(stock) if judge in AGAINST_TORCH else None, results)
    tap.end()


if __name__ == "__main__":
    main()
