"""What FSDPModule's methods and the users' habits ask for, on the engine and on torch's own: the same numbers, bit for bit.

    python tests/train/methods_test.py [TEXT]      only cases whose name holds TEXT
"""
import copy
import gc
import sys
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F

import _ranks
from fsdp2_test import Block, Plain, build
from optim_test import loss_of, same, sharded, whole


def served(model):
    return hasattr(model._get_fsdp_state(), "_rc_root")


def served_mode():
    return sys.argv[2] == "ours"


def weights(model):
    return {k: whole(v) for k, v in model.state_dict().items()}


class Steps:
    """A model, its optimizer and its data, one call a step."""

    def __init__(self, model, optimizer=None, seed=10):
        import torch.distributed as dist

        self.model = model
        self.opt = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.data = torch.Generator().manual_seed(seed + dist.get_rank())
        self.losses = []

    def backward(self, **kwargs):
        loss = loss_of(self.model, self.data)
        loss.backward(**kwargs)
        self.losses.append(loss.item())

    def __call__(self, count=1):
        for _ in range(count):
            self.backward()
            self.opt.step()
            self.opt.zero_grad()
        return self

    def result(self, **more):
        return {"losses": self.losses, "weights": weights(self.model), "served": served(self.model), **more}


# Gradients


def kept_gradients(how="dtensor", zero="none"):
    """What somebody keeps of a step stays as it was."""
    run = Steps(sharded("odd"))
    kept = []
    for _ in range(4):
        run.backward()
        for p in run.model.parameters():
            kept.append({"dtensor": lambda: p.grad, "local": lambda: p.grad._local_tensor, "to_local": lambda: p.grad.to_local(),
                         "view": lambda: p.grad._local_tensor.view(-1)[:3], "detach": lambda: p.grad.detach()}[how]())
        run.opt.step()
        for p in run.model.parameters():
            p.grad = None
    return run.result(kept=[whole(k) for k in kept])


def kept_of_one():
    """One gradient alone is kept, and the memory of others is used again."""
    run = Steps(sharded("plain"))
    kept = []
    for i in range(4):
        run.backward()
        if i == 1:
            kept.append(run.model.layers[1].up.weight.grad)
        run.opt.step()
        run.opt.zero_grad()
    return run.result(kept=[whole(k) for k in kept])


def two_backwards(kind="plain", bias=0.0):
    """Two losses of one forward pass: gradients add up. With a bias to weights the memory of one layer is no other's."""
    model = sharded(kind)
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            for p in layer.parameters():
                p.add_(bias * (i + 1))
    run = Steps(model)
    for _ in range(3):
        ids = torch.randint(0, 60, (2, 12), generator=run.data)
        out = run.model(ids)
        out.float().square().mean().backward(retain_graph=True)
        first = [whole(p.grad) for p in run.model.parameters()]
        out[:, :3].abs().mean().backward()
        run.opt.step()
        run.opt.zero_grad()
    return run.result(first=first)


def two_forwards():
    """Two forward passes, then one backward pass of both."""
    run = Steps(sharded("plain"))
    for _ in range(3):
        loss = loss_of(run.model, run.data) + loss_of(run.model, run.data) * 0.5
        loss.backward()
        run.opt.step()
        run.opt.zero_grad()
    return run.result()


def accumulation(sync=False, mp=None, last=False, reshard=True):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    run = Steps(sharded("plain", mp_policy=MixedPrecisionPolicy(**{k: getattr(torch, v) for k, v in (mp or {}).items()})))
    for _ in range(3):
        for i in range(3):
            if not sync:
                run.model.set_requires_gradient_sync(i == 2)
            if last:
                run.model.set_is_last_backward(i == 2)
            if not reshard:
                run.model.set_reshard_after_backward(i == 2)
            run.backward()
        run.opt.step()
        run.opt.zero_grad()
    return run.result()


def some_unsynced():
    """Only the layers wait with their gradients."""
    run = Steps(sharded("plain"))
    for _ in range(2):
        for i in range(2):
            for layer in run.model.layers:
                layer.set_requires_gradient_sync(i == 1)
            run.backward()
        run.opt.step()
        run.opt.zero_grad()
    return run.result()


def in_backward():
    """The optimizer steps in a hook as soon as a gradient is there."""
    model = sharded("odd")
    opts = {p: torch.optim.AdamW([p], lr=1e-2) for p in model.parameters()}
    seen = []

    def hook(p):
        seen.append(tuple(p.shape))
        opts[p].step()
        opts[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    run = Steps(model, torch.optim.SGD(model.parameters(), lr=0.0))
    for _ in range(3):
        run.backward()
    return run.result(grads=[p.grad is None for p in model.parameters()], seen=sorted(seen))


class Switch(nn.Module):
    """One of two branches; the other has no gradients."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.a, self.b = Block(16, 32), Block(16, 32)
        self.both = nn.ModuleDict({"c": nn.Linear(16, 16), "d": nn.Linear(16, 16)})
        self.head = nn.Linear(16, 64)
        self.which = 0

    def forward(self, ids):
        x = self.embed(ids)
        x = self.a(x) if self.which == 0 else self.b(x)
        return self.head(self.both["cd"[self.which]](x))


def switch(unused=False, by_rank=False):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = Switch()
    for m in (model.a, model.b):
        fully_shard(m)
    fully_shard(model)
    if unused:
        model.set_reduce_scatter_unused_params(True)
    run = Steps(model)
    grads = []
    for i in range(5):
        model.which = (dist.get_rank() if by_rank else i // 2) % 2
        if by_rank:  # both ranks run both, as they must for the gathers, and use one
            ids = torch.randint(0, 60, (2, 12), generator=run.data)
            x = model.embed(ids)
            raise AssertionError("not used")
        run.backward()
        grads.append({n: None if p.grad is None else whole(p.grad) for n, p in model.named_parameters()})
        run.opt.step()
        run.opt.zero_grad()
    return run.result(grads=grads)


def divide_factor(factor=None, force_sum=False, mp=None, name="set_gradient_divide_factor"):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    model = sharded("plain", mp_policy=MixedPrecisionPolicy(**{k: getattr(torch, v) for k, v in (mp or {}).items()}))
    for m in [model, *model.layers]:
        if factor:
            getattr(m, name)(factor)
        if force_sum or factor and not served_mode():
            m.set_force_sum_reduction_for_comms(True)
    return Steps(model, torch.optim.SGD(model.parameters(), lr=0.1))(3).result()


def own_gradients():
    """Gradients that the user sets before the backward pass are added to."""
    run = Steps(sharded("odd"))
    run()
    for p in run.model.parameters():
        p.grad = torch.ones_like(p)
    run.backward()
    grads = [whole(p.grad) for p in run.model.parameters()]
    run.opt.step()
    run.opt.zero_grad()
    run.model.layers[0].up.weight.grad = torch.ones_like(run.model.layers[0].up.weight)
    return run(1).result(grads=grads)


# Gathering


def switched_reshard(forward=None, backward=None, at=1):
    run = Steps(sharded("deep"))
    for i in range(4):
        if i == at:
            if forward is not None:
                run.model.set_reshard_after_forward(forward)
            if backward is not None:
                run.model.set_reshard_after_backward(backward)
        run.backward()
        for m in run.model.modules() if backward is False else ():
            if hasattr(m, "reshard"):
                m.reshard()
        run.opt.step()
        run.opt.zero_grad()
    return run.result()


def by_hand(early=True, all_at_once=False, async_op=False):
    run = Steps(sharded("deep" if all_at_once else "plain"))
    seen = []
    for i in range(3):
        modules = list(run.model.layers) if all_at_once else [run.model.layers[i % 3]]
        if early or i:
            handles = [m.unshard(async_op=async_op) for m in modules]
            for h in handles:
                if h is not None:
                    h.wait()
            seen += [(type(p).__name__, p.detach().clone()) for m in modules for p in m.parameters()]
            if i != 1:
                for m in modules:
                    m.reshard()
                seen += [(type(p).__name__, tuple(p.shape)) for m in modules for p in m.parameters()]
        run()
    return run.result(seen=seen)


def prefetch(forward=True, backward=False, count=2):
    run = Steps(sharded("deep"))
    layers = list(run.model.layers)
    for i, layer in enumerate(layers):
        if forward and layers[i + 1 : i + 1 + count]:
            layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + count])
        if backward and i:
            layer.set_modules_to_backward_prefetch(layers[max(0, i - count) : i][::-1])
    return run(3).result()


def accepted():
    """Hints that change no numbers."""
    from torch.distributed.fsdp import share_comm_ctx

    run = Steps(sharded("plain"))
    run.model.set_unshard_in_backward(False)  # the root stays gathered
    run.model.set_reduce_scatter_max_input_buffers(2)
    run.model.set_separate_reduce_scatter_group()
    share_comm_ctx([run.model])
    return run(3).result()


def forward_method():
    from torch.distributed.fsdp import register_fsdp_forward_method

    model = sharded("plain")
    Block.twice = lambda self, x: self.forward(self.forward(x))
    Plain.encode = lambda self, ids: self.layers[0].twice(self.embed(ids))
    register_fsdp_forward_method(model, "encode")
    for layer in model.layers:
        register_fsdp_forward_method(layer, "twice")
    run = Steps(model)
    run()
    for _ in range(2):
        ids = torch.randint(0, 60, (2, 12), generator=run.data)
        loss = model.encode(ids).square().mean()
        loss.backward()
        run.losses.append(loss.item())
        run.opt.step()
        run.opt.zero_grad()
    return run(1).result()


def inner_forward():
    """A layer is run on its own between steps."""
    run = Steps(sharded("plain"))
    run()
    for _ in range(2):
        x = torch.randn(2, 5, 32, generator=run.data)
        loss = run.model.layers[1](x).square().mean()
        loss.backward()
        run.losses.append(loss.item())
        run.opt.step()
        run.opt.zero_grad()
        run()
    return run.result()


def module_list(skip=False):
    """Embedding, last norm and head in one unit."""
    from torch.distributed.fsdp import fully_shard

    model, layers = build("tied")
    for layer in layers:
        fully_shard(layer)
    fully_shard([model.embed, model.norm, model.head])
    fully_shard(model)
    if skip:  # chunks of the loss: the head runs after the root
        head, model.head = model.head, nn.Identity()
        run = Steps(model)
        for _ in range(3):
            ids = torch.randint(0, 60, (2, 12), generator=run.data)
            hidden = model(ids)
            loss = sum(head(h).square().mean() for h in hidden.chunk(2))
            loss.backward()
            run.losses.append(loss.item())
            run.opt.step()
            run.opt.zero_grad()
        return run.result()
    return Steps(model)(3).result()


def ignored():
    from torch.distributed.fsdp import fully_shard

    model, layers = build("plain")
    extra = {model.layers[0].norm.weight, model.norm.weight}
    for layer in layers:
        fully_shard(layer, ignored_params=extra)
    fully_shard(model, ignored_params=extra)
    return Steps(model)(3).result()


def compiled(where="layers"):
    torch._dynamo.reset()
    model = sharded("plain")
    if where == "layers":
        for layer in model.layers:
            layer.compile(backend="aot_eager")
    else:
        model.compile(backend="aot_eager")
    return Steps(model)(3).result()


def evaluation(inference=False):
    run = Steps(sharded("plain"))
    seen = []
    for _ in range(3):
        run()
        with torch.inference_mode() if inference else torch.no_grad():
            for _ in range(2):
                seen.append(loss_of(run.model, run.data).item())
    return run.result(seen=seen)


# State


def middle_of_step():
    run = Steps(sharded("odd"))
    seen = []
    for _ in range(2):
        loss = loss_of(run.model, run.data)
        seen.append(weights(run.model))
        loss.backward()
        seen.append(weights(run.model))
        run.opt.step()
        seen.append(weights(run.model))
        run.opt.zero_grad()
    return run.result(seen=seen)


def load(assign=False, steps=1):
    run = Steps(sharded("odd"))
    run(steps)
    state = copy.deepcopy(run.model.state_dict())
    run(2)
    run.model.load_state_dict({k: v.clone() * 1.5 for k, v in state.items()}, assign=assign)
    if assign:  # stock's optimizer has the old parameters too
        run.opt = torch.optim.AdamW(run.model.parameters(), lr=1e-2)
    return run(2).result()


def change(dtype="bfloat16", early=False):
    run = Steps(sharded("plain"))
    if not early:
        run()
    run.model.to(getattr(torch, dtype))
    run.opt = torch.optim.AdamW(run.model.parameters(), lr=1e-2)
    return run(2).result(dtypes=[str(p.dtype) for p in run.model.parameters()])


def meta():
    from torch.distributed.fsdp import fully_shard

    source, _ = build("odd")
    with torch.device("meta"):
        model, layers = build("odd")
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device="cpu")
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    set_model_state_dict(model, source.state_dict(), options=StateDictOptions(full_state_dict=True))
    return Steps(model)(3).result()


class Stop(Exception):
    pass


def raising(where="forward", layer=1):
    run = Steps(sharded("deep"))
    run(2)
    module = run.model.layers[layer]

    def stop(*args):
        raise Stop()

    if where == "forward":
        handle = module.down.register_forward_pre_hook(stop)
    else:
        handle = module.down.register_forward_hook(lambda m, a, out: out.register_hook(stop) and None)
    if served(run.model):
        try:
            run.backward()
        except Stop:
            pass
        run.model.reset_iter_state()
    else:  # what the lost step should leave behind: nothing. torch's own leaves gradients that were not reduced yet
        torch.randint(0, 60, (2, 12), generator=run.data)
    handle.remove()
    run.opt.zero_grad()
    shapes = [(type(p).__name__, tuple(p.shape)) for p in run.model.parameters()]
    return run(2).result(shapes=shapes)


def two_models():
    a, b = Steps(sharded("plain")), Steps(sharded("odd"), seed=20)
    for _ in range(3):
        a()
        b()
    loss = loss_of(a.model, a.data) + loss_of(b.model, b.data)  # and in one backward pass
    loss.backward()
    for run in (a, b):
        run.opt.step()
        run.opt.zero_grad()
    return {"a": a.result(), "b": b.result(), "served": served(a.model) and served(b.model)}


def hybrid(kind="plain", accumulate=False, clip=False, unreduced=False):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    run = Steps(sharded(kind, mesh=mesh))
    norms = []
    for _ in range(3):
        if accumulate:
            run.model.set_requires_gradient_sync(False)
            run.backward()
            run.model.set_requires_gradient_sync(True)
        if unreduced:
            run.model.set_requires_all_reduce(False)
            run.backward()
            run.model.set_requires_all_reduce(True)
        run.backward()
        if clip:
            norms.append(whole(torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)))
        run.opt.step()
        run.opt.zero_grad()
    return run.result(norms=norms)


def fallback(what):
    """Served by torch's own, from the start or from where the user asks for it."""
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    options = {"int": dict(reshard_after_forward=2),
               "placement": dict(shard_placement_fn=lambda p: torch.distributed.tensor.Shard(1) if p.ndim > 1 else None)}
    if what == "offload":
        model, layers = build("plain")
        fully_shard(layers[0], offload_policy=CPUOffloadPolicy(pin_memory=False))
        run = Steps(fully_shard(model))
    else:
        run = Steps(sharded("plain", **options.get(what, {})))
        run(2 if what not in options else 0)
    if what == "hook":
        for m in [run.model, *run.model.layers]:
            m.set_all_reduce_hook(lambda grad: grad.mul_(0.5))
    if what == "all_gather":
        from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather

        class Own(DefaultAllGather):
            pass

        run.model.layers[0].set_custom_all_gather(Own())
    if what == "reduce_scatter":
        from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

        class Own(DefaultReduceScatter):
            pass

        run.model.layers[0].set_custom_reduce_scatter(Own())
    return run(3).result()


CASES = [("kept gradients, %s" % how, 2, kept_gradients, dict(how=how)) for how in ("dtensor", "local", "to_local", "view", "detach")]
CASES += [
    ("one kept gradient", 2, kept_of_one, {}),
    ("two backward passes of one forward pass", 2, two_backwards, {}),
    ("two backward passes of one forward pass, deep", 2, two_backwards, dict(kind="deep", bias=0.05)),
    ("two forward passes, one backward pass", 2, two_forwards, {}),
    ("accumulation with communication", 2, accumulation, dict(sync=True)),
    ("accumulation without communication", 2, accumulation, dict()),
    ("accumulation, set_is_last_backward", 2, accumulation, dict(last=True)),
    ("accumulation, set_reshard_after_backward", 2, accumulation, dict(reshard=False)),
    ("accumulation, bf16 with sums in f32", 2, accumulation, dict(mp=dict(param_dtype="bfloat16", reduce_dtype="float32"))),
    ("only layers wait with their gradients", 2, some_unsynced, {}),
    ("optimizer in backward", 2, in_backward, {}),
    ("parameters without gradients in some steps", 2, switch, {}),
    ("set_reduce_scatter_unused_params", 2, switch, dict(unused=True)),
    ("set_gradient_divide_factor", 2, divide_factor, dict(factor=8.0)),
    ("set_gradient_divide_factor, bf16", 2, divide_factor, dict(factor=8.0, mp=dict(param_dtype="bfloat16"))),
    ("set_gradient_divide_factor, f16 messages", 2, divide_factor, dict(factor=8.0, mp=dict(reduce_dtype="float16"))),
    ("set_gradient_divide_factor of 1", 2, divide_factor, dict(factor=1.0)),
    ("set_reduce_scatter_divide_factor", 2, divide_factor, dict(factor=3.0, name="set_reduce_scatter_divide_factor")),
    ("set_force_sum_reduction_for_comms", 2, divide_factor, dict(force_sum=True)),
    ("set_force_sum_reduction_for_comms and a factor", 2, divide_factor, dict(force_sum=True, factor=6.0)),
    ("gradients set by the user", 2, own_gradients, {}),
    ("set_reshard_after_forward(False) in the middle", 2, switched_reshard, dict(forward=False)),
    ("set_reshard_after_forward(True) in the middle", 2, switched_reshard, dict(forward=True)),
    ("set_reshard_after_backward(False) in the middle", 2, switched_reshard, dict(backward=False)),
    ("unshard and reshard by hand before the first forward pass", 2, by_hand, dict()),
    ("unshard and reshard by hand", 2, by_hand, dict(early=False)),
    ("unshard by hand, async", 2, by_hand, dict(early=False, async_op=True)),
    ("unshard of all layers at once", 2, by_hand, dict(early=False, all_at_once=True)),
    ("unshard of all layers at once before the first forward pass", 2, by_hand, dict(all_at_once=True, async_op=True)),
    ("set_modules_to_forward_prefetch", 2, prefetch, {}),
    ("set_modules_to_backward_prefetch", 2, prefetch, dict(forward=False, backward=True)),
    ("hints that change no numbers", 2, accepted, {}),
    ("register_fsdp_forward_method", 2, forward_method, {}),
    ("a layer run on its own", 2, inner_forward, {}),
    ("fully_shard of a list", 2, module_list, {}),
    ("fully_shard of a list, the head after the root", 2, module_list, dict(skip=True)),
    ("ignored_params", 2, ignored, {}),
    ("compiled layers", 2, compiled, {}),
    ("evaluation, no_grad", 2, evaluation, {}),
    ("evaluation, inference_mode", 2, evaluation, dict(inference=True)),
    ("state_dict in the middle of a step", 2, middle_of_step, {}),
    ("load_state_dict", 2, load, {}),
    ("load_state_dict before the first step", 2, load, dict(steps=0)),
    ("load_state_dict(assign=True)", 2, load, dict(assign=True)),
    ("model.to(bfloat16) before the first step", 2, change, dict(early=True)),
    ("meta device, to_empty, set_model_state_dict", 2, meta, {}),
    ("an exception in forward, reset_iter_state", 2, raising, {}),
    ("an exception in backward, reset_iter_state", 2, raising, dict(where="backward")),
    ("an exception in backward in the last layer, reset_iter_state", 2, raising, dict(where="backward", layer=4)),
    ("two models", 2, two_models, {}),
    ("left to torch: CPU offload of some layers", 2, fallback, dict(what="offload")),
    ("left to torch: shard_placement_fn", 2, fallback, dict(what="placement")),
    ("left to torch: set_all_reduce_hook in the middle", 2, fallback, dict(what="hook")),
    ("left to torch: set_custom_all_gather in the middle", 2, fallback, dict(what="all_gather")),
    ("left to torch: set_custom_reduce_scatter in the middle", 2, fallback, dict(what="reduce_scatter")),
    ("hybrid mesh", 4, hybrid, {}),
    ("hybrid mesh, odd sizes", 4, hybrid, dict(kind="odd")),
    ("hybrid mesh, accumulation", 4, hybrid, dict(accumulate=True)),
    ("hybrid mesh, clipping", 4, hybrid, dict(clip=True)),
    ("left to torch: reshard_after_forward=2", 4, fallback, dict(what="int")),
    ("left to torch: set_requires_all_reduce on a hybrid mesh", 4, hybrid, dict(unreduced=True)),
    ("three ranks: kept gradients", 3, kept_gradients, dict(how="dtensor")),
    ("three ranks: unused parameters", 3, switch, dict(unused=True)),
    ("three ranks: load_state_dict(assign=True)", 3, load, dict(assign=True)),
]


def call(function, kwargs):
    """In the ranks' processes: an exception that all of them meet is a result, so that later cases still run."""
    try:
        return globals()[function](**kwargs)
    except Exception:
        return {"error": traceback.format_exc()}
    finally:
        gc.collect()


def compare(sentence, ranks, stock, ours):
    for result in (stock, ours):
        if isinstance(result, Exception):
            raise result
    for a, b in zip(stock, ours):
        if "error" in a or "error" in b:
            raise AssertionError("torch: %s\nours: %s" % (a.get("error", "no error"), b.get("error", "no error")))
        a.pop("served")
        for part in ("a", "b"):
            a.get(part, {}).pop("served", None), b.get(part, {}).pop("served", None)
        assert b.pop("served") != sentence.startswith("left to torch"), "the wrong one ran it"
        for part in a:
            same(a[part], b[part], part, 0 if ranks == 2 and "clip" not in sentence and "factor" not in sentence else 1e-4)


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    for ranks in (2, 3, 4):
        cases = [c for c in CASES if c[1] == ranks and only in c[0]]
        if not cases:
            continue
        calls = [dict(function=f.__name__, kwargs=kwargs) for _, _, f, kwargs in cases]
        stock, ours = (_ranks.run("methods_test:call", ranks, mode, calls, timeout=150) for mode in (False, True))
        for (sentence, _, _, _), a, b in zip(cases, stock, ours):
            tap.check(sentence, compare, sentence, ranks, a, b)
    tap.end()


if __name__ == "__main__":
    main()
