"""Optimizers and clipping over flat shards against torch's own: the same weights, states and norms, and that the flat path was taken.

    python tests/train/optim_test.py [TEXT]      only cases whose name holds TEXT
"""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

import _ranks
from fsdp2_test import build

NAMES = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def whole(value):
    from torch.distributed.tensor import DTensor

    value = value.full_tensor() if isinstance(value, DTensor) else value
    return value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Linear(width, 1)

    def forward(self, x):
        return x * self.one(x).sigmoid()


def sharded(kind, **options):
    from torch.distributed.fsdp import fully_shard

    model, layers = build(kind)
    if kind == "one row":  # of which all ranks but the first have nothing
        model.head = nn.Sequential(model.head, Gate(64))
        layers.append(model.head[1])
    for layer in layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model


def groups(model, how):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if how == "decay":
        return [dict(params=[p for n, p in named if p.ndim > 1]),
                dict(params=[p for n, p in named if p.ndim < 2], weight_decay=0.0, lr=3e-2)]
    if how == "layers":  # every layer its own rate
        return [dict(params=[p], lr=1e-2 / (1 + i)) for i, (n, p) in enumerate(named)]
    return [p for n, p in named]


def loss_of(model, data):
    ids = torch.randint(0, 60, (2, 12), generator=data)
    logits = model(ids)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def flat_runs(opt):
    return [len(plan.runs) for plan in getattr(opt, "_rc_plans", {}).values()]


class Count:
    """How many steps of groups our kernels have done since the last question."""

    def __init__(self):
        from raylet_c.train import own_step

        self.number, self.run, self.trial = 0, own_step._run, own_step.TRIAL
        own_step._run = self

    def __call__(self, lists, masters, o):
        self.number += lists[0][0].numel() != self.trial
        self.run(lists, masters, o)

    def end(self):
        from raylet_c.train import own_step

        own_step._run = self.run
        return self.number


def train(kind="plain", steps=5, optimizer="adamw", how=None, options=None, event=None, scheduler=None, clip=None, bf16=False,
          set_to_none=True, closure=False):
    """One run. event: what happens before the step of that number, see `happen`."""
    import torch.distributed as dist

    from raylet_c import train as ours

    counted = Count() if ours.installed() else None
    model = sharded(kind)
    if bf16:
        model.to(torch.bfloat16)
    opt = NAMES[optimizer](groups(model, how), **{"lr": 1e-2, **(options or {})})
    plan = {"cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 4), "onecycle": lambda: torch.optim.lr_scheduler.OneCycleLR(
        opt, 0.05, total_steps=steps + 1), None: lambda: None}[scheduler]()
    data = torch.Generator().manual_seed(10 + dist.get_rank())
    seen, norms, runs = [], [], []
    opt.register_step_post_hook(lambda o, a, k: seen.append(sorted(k for s in o.state.values() for k in s)))
    for step in range(steps):
        if event and event[1] == step:
            opt = happen(event[0], model, opt) or opt

        def once():
            opt.zero_grad(set_to_none=set_to_none)
            loss = loss_of(model, data).float()
            loss.backward()
            return loss

        if closure:
            loss = opt.step(once)
        else:
            loss = once()
            if event and event[1] == step:
                happen_after_backward(event[0], model, opt)
            if clip:
                everything = torch.cat([whole(p.grad).double().flatten() for p in model.parameters()])
                norm = whole(torch.nn.utils.clip_grad_norm_(model.parameters(), **clip))
                exact = torch.linalg.vector_norm(everything, clip.get("norm_type", 2.0))  # as one process with all gradients has it
                assert abs(norm.item() - exact.item()) <= 1e-6 * exact.item(), (norm, exact)
                norms.append(norm)
            opt.step()
        if plan is not None:
            plan.step()
        norms.append(loss.item())
        runs.append(flat_runs(opt))
    names = {p: n for n, p in model.named_parameters()}
    own = counted.end() if counted else None
    return {"own": own, "norms": norms, "weights": {k: whole(v) for k, v in model.state_dict().items()}, "runs": runs, "seen": seen,
            "state": {names[p]: {k: whole(v) for k, v in s.items()} for p, s in opt.state.items() if s}}


def happen(event, model, opt):
    named = dict(model.named_parameters())
    if event == "add group":
        model.embed.weight.requires_grad_(True)
        opt.add_param_group(dict(params=[model.embed.weight], lr=5e-3))
    if event == "thaw":
        for p in model.parameters():
            p.requires_grad_(True)
    if event == "freeze":
        model.layers[1].up.weight.requires_grad_(False)
    if event == "reload":
        opt.load_state_dict(copy.deepcopy(opt.state_dict()))
    if event == "reload in place":
        opt.load_state_dict(opt.state_dict())
    if event == "state elsewhere":  # as offloading loops do
        for state in opt.state.values():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    state[key] = value.clone()
    if event == "new optimizer":
        new = type(opt)(groups(model, None), lr=1e-2)
        new.load_state_dict(opt.state_dict())
        return new
    if event == "no state":
        opt.state.clear()
    if event == "scale state":
        for state in opt.state.values():
            for key in ("exp_avg", "momentum_buffer"):
                if state.get(key) is not None:
                    state[key].mul_(0.5)
    if event == "options":
        for group in opt.param_groups:
            group["betas"], group["weight_decay"] = (0.8, 0.9), 0.3
    if event == "weights by hand":
        with torch.no_grad():
            for p in named.values():
                p.mul_(0.9)


def happen_after_backward(event, model, opt):
    if event == "no gradient":
        model.layers[0].down.weight.grad = None
    if event == "own gradient":
        model.layers[0].down.weight.grad = model.layers[0].down.weight.grad * 2


ADAM = [dict(), dict(amsgrad=True), dict(maximize=True), dict(foreach=True), dict(foreach=False), dict(fused=True), dict(weight_decay=0.0),
        dict(capturable=False, eps=1e-4)]
SGD = [dict(momentum=0.9), dict(), dict(momentum=0.9, nesterov=True), dict(momentum=0.9, dampening=0.5),
       dict(momentum=0.5, weight_decay=0.1), dict(momentum=0.9, foreach=True), dict(momentum=0.9, maximize=True)]


def text(options):
    return " ".join("%s=%s" % item for item in options.items()) or "defaults"


CASES = [("adamw, " + text(o), dict(optimizer="adamw", options=o)) for o in ADAM]
CASES += [("adam, " + text(o), dict(optimizer="adam", options=o)) for o in (dict(), dict(weight_decay=0.1))]
CASES += [("sgd, " + text(o), dict(optimizer="sgd", options={**o, "lr": 0.1})) for o in SGD]
CASES += [
    ("adamw, odd sizes", dict(kind="odd")),
    ("sgd, odd sizes", dict(kind="odd", optimizer="sgd", options=dict(momentum=0.9))),
    ("adamw, a unit without rows on some ranks", dict(kind="one row")),
    ("sgd, a unit without rows on some ranks", dict(kind="one row", optimizer="sgd", options=dict(momentum=0.9))),
    ("adamw, lora", dict(kind="lora")),
    ("adamw, tied", dict(kind="tied")),
    ("adamw, groups with and without decay", dict(how="decay")),
    ("adamw, a group for each parameter", dict(how="layers")),
    ("adamw, cosine schedule", dict(scheduler="cosine")),
    ("adamw, one-cycle schedule, which changes betas too", dict(scheduler="onecycle")),
    ("sgd, cosine schedule", dict(optimizer="sgd", options=dict(momentum=0.9, lr=0.1), scheduler="cosine")),
    ("adamw, closure", dict(closure=True)),
    ("sgd, closure", dict(optimizer="sgd", options=dict(momentum=0.9), closure=True)),
    ("adamw, bf16 weights", dict(bf16=True)),
    ("adamw, gradients zeroed in place", dict(set_to_none=False)),
]
for event in ("reload", "reload in place", "state elsewhere", "new optimizer", "no state", "scale state", "weights by hand", "freeze",
              "no gradient", "own gradient"):
    CASES.append(("adamw, %s" % event, dict(event=[event, 2])))
    CASES.append(("sgd, %s" % event, dict(event=[event, 2], optimizer="sgd", options=dict(momentum=0.9, lr=0.1))))
CASES += [
    ("adamw, changed options", dict(event=["options", 2])),
    ("adamw, added group", dict(kind="frozen_embed", event=["add group", 2])),
    ("adamw, thawed in the middle, state in the middle", dict(kind="frozen_embed", event=["thaw", 3])),
]
NORMS = [(1.0, 0.5), (2.0, 0.5), (float("inf"), 0.01), (3.0, 0.5), (2.0, 1e9)]
CASES += [("clipping, norm %g to %g" % (n, m), dict(kind="odd", optimizer="sgd", options=dict(lr=0.1), clip=dict(max_norm=m, norm_type=n)))
          for n, m in NORMS]
CASES += [("clipping, foreach=False", dict(clip=dict(max_norm=0.5, foreach=False))),
          ("clipping, error_if_nonfinite", dict(clip=dict(max_norm=0.5, error_if_nonfinite=True)))]


def same(a, b, where, tolerance):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape, where
        if tolerance:
            assert torch.allclose(a, b, rtol=tolerance, atol=tolerance), "%s differs by %g" % (where, (a - b).abs().max())
        else:
            assert torch.equal(a, b), "%s differs by %g" % (where, (a.double() - b.double()).abs().max())
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), "%s: %s and %s" % (where, sorted(a), sorted(b))
        for key in a:
            same(a[key], b[key], "%s %s" % (where, key), tolerance)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, "%s %d" % (where, i), tolerance)
    elif isinstance(a, float) and tolerance:
        assert abs(a - b) <= tolerance * max(1, abs(a)), "%s: %r and %r" % (where, a, b)
    else:
        assert a == b, "%s: %r and %r" % (where, a, b)


def compare(kwargs, stock, ours, exact=True):
    for result in (stock, ours):
        if isinstance(result, Exception):
            raise result
    for a, b in zip(stock, ours):
        runs, own = b.pop("runs"), b.pop("own")
        a.pop("runs"), a.pop("own")
        options = kwargs.get("options") or {}
        left = kwargs.get("bf16") or "amsgrad" in options or options.get("foreach")  # torch's function: see own_step.py
        assert (own == 0) == bool(left), "%d steps were done by our kernels" % own
        assert runs[-1], "the flat path was not taken: %s" % runs
        assert kwargs.get("how") or kwargs.get("kind") or "event" in kwargs or runs[-1] == [4], "not one run for each unit: %s" % runs
        for part in a:
            same(a[part], b[part], part, 0 if exact and not kwargs.get("clip") else 1e-6 if part == "norms" else 1e-5)


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    for ranks in (2, 3):
        cases = [("%s, %d ranks" % (name, ranks), kwargs) for name, kwargs in CASES
                 if ranks == 2 or name.endswith(("odd sizes", "to 0.5", "decay"))]
        cases = [(s, k) for s, k in cases if only in s]
        if not cases:
            continue
        stock, ours = (_ranks.run("optim_test:train", ranks, mode, [k for _, k in cases]) for mode in (False, True))
        for (sentence, kwargs), a, b in zip(cases, stock, ours):
            tap.check(sentence, compare, kwargs, a, b, ranks == 2)
    tap.end()


if __name__ == "__main__":
    main()
