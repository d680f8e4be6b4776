"""The kernels' optimizer steps: FSDP1's parameters against torch's own, and float32 masters of bf16 parameters, with either FSDP, against
masters that are kept and stepped by hand over torch's own FSDP.

    python tests/train/own_step_test.py [TEXT]      only cases whose name holds TEXT
"""
import copy
import sys

import torch

import _ranks
from fsdp2_test import build
from optim_test import NAMES, Count, loss_of, same, whole


class ByHand:
    """Masters as a user would keep them. Steps in f32, written out."""

    def __init__(self, params, kind, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=None, momentum=0, nesterov=False):
        self.params, self.kind, self.lr, self.betas, self.eps = list(params), kind, lr, betas, eps
        self.momentum, self.nesterov = momentum, nesterov
        self.decay = weight_decay if weight_decay is not None else 0.01 if kind == "adamw" else 0.0
        self.states = {}

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p in self.params:
            if p.grad is None:
                continue
            local, g = (getattr(t, "_local_tensor", t) for t in (p, p.grad))
            state = self.states.setdefault(p, {"master": local.float(), "exp_avg": torch.zeros_like(local, dtype=torch.float32), "step": 0,
                                               "exp_avg_sq": torch.zeros_like(local, dtype=torch.float32)})
            master, m, v = state["master"], state["exp_avg"], state["exp_avg_sq"]
            written = master.to(local.dtype) != local  # by somebody else since the last step
            master[written] = local[written].float()
            g = g.float()
            if self.kind == "sgd":
                g = g.add(master, alpha=self.decay) if self.decay else g
                if self.momentum:
                    m.mul_(self.momentum).add_(g)
                    g = g.add(m, alpha=self.momentum) if self.nesterov else m
                master.add_(g, alpha=-self.lr)
            else:
                state["step"] += 1
                if self.kind == "adamw":
                    master.mul_(1 - self.lr * self.decay)
                elif self.decay:
                    g = g.add(master, alpha=self.decay)
                m.lerp_(g, 1 - self.betas[0])
                v.mul_(self.betas[1]).addcmul_(g, g, value=1 - self.betas[1])
                first, second = (1 - b ** state["step"] for b in self.betas)
                root = v.double().sqrt().float()  # MKL's, in f32, is at times off in the last place
                master.addcdiv_(m, (root / second**0.5).add_(self.eps), value=-self.lr / first)
            local.copy_(master)


def sharded(face, kind, bf16):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import CustomPolicy

    model, layers = build(kind)
    if bf16:
        model.bfloat16()
    if face == "fsdp2":
        for layer in layers:
            fully_shard(layer)
        return fully_shard(model)
    return FullyShardedDataParallel(model, auto_wrap_policy=CustomPolicy(lambda m: m in layers), use_orig_params=face == "fsdp1 orig",
                                    device_id=torch.device("cpu"))


def weights(model):
    """Of this rank."""
    return {n: getattr(p, "_local_tensor", p).detach().clone() for n, p in model.named_parameters()}


def train(face, optimizer="adamw", kind="plain", options=None, masters=True, event=None, steps=5):
    import torch.distributed as dist

    from raylet_c import train as ours

    by_hand = masters and not ours.installed()
    if ours.installed():
        from raylet_c.train import optim

        optim.masters = masters
        counted = Count()
    model = sharded(face, kind, masters)
    options = dict({"lr": 1e-2}, **(options or {}))

    def make():
        plain = {k: v for k, v in options.items() if k != "fused"}
        return ByHand(model.parameters(), optimizer, **plain) if by_hand else NAMES[optimizer](model.parameters(), **options)

    opt = make()
    data = torch.Generator().manual_seed(10 + dist.get_rank())
    losses = []
    for step in range(steps):
        if step == 3 and event == "written":
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(torch.linspace(0.5, 1.5, 5)[step].item() + 0.25)
        if step == 3 and event == "resumed" and not by_hand:
            saved = copy.deepcopy(opt.state_dict())
            assert not masters or all(v.dtype is torch.float32 for s in saved["state"].values() for v in s.values())
            opt = make()
            opt.load_state_dict(saved)
        opt.zero_grad()
        loss = loss_of(model, data).float()
        loss.backward()
        if step == 2 and event == "no gradient":
            next(p for p in model.parameters()).grad = None
        opt.step()
        losses.append(loss.item())
    result = {"losses": losses, "weights": weights(model)}
    if not by_hand:
        states = [s for s in opt.state.values() if s]
        kinds = {k for s in states for k in s}
        dtypes = {v.dtype for s in states for k, v in s.items() if v is not None and v.numel()} - {None}
        assert len(states) <= len(list(model.parameters())), "states that are no parameter's"
        if ours.installed():
            assert ("master" in kinds) == masters and dtypes <= {torch.float32}, (kinds, dtypes)
            assert counted.end() == steps, "not all steps were our kernels'"
            dtype = torch.bfloat16 if masters else torch.float32
            assert all(v.dtype is dtype for v in model.state_dict().values() if v.is_floating_point())
    return result


def saved_and_loaded(face, masters=True):
    """A checkpoint with masters goes on as if nothing had been; into a run without masters it goes, too."""
    import io

    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    from raylet_c.train import optim

    results = []
    for again in (False, True):
        optim.masters = True
        model = sharded(face, "odd", True)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
        data = torch.Generator().manual_seed(10 + dist.get_rank())
        for step in range(6):
            if again and step == 3:
                state = get_optimizer_state_dict(model, opt)
                buffer = io.BytesIO()
                torch.save(state, buffer)
                buffer.seek(0)
                opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
                set_optimizer_state_dict(model, opt, torch.load(buffer, weights_only=False))
            opt.zero_grad()
            loss = loss_of(model, data).float()
            loss.backward()
            opt.step()
        results.append(weights(model))
    same(results[0], results[1], "resumed", 0)
    optim.masters = False
    opt.zero_grad()
    loss_of(model, data).float().backward()
    opt.step()
    assert not any("master" in s for s in opt.state.values())
    assert all(v.dtype is torch.bfloat16 for s in opt.state.values() for k, v in s.items() if k != "step")


FACES = ("fsdp2", "fsdp1 orig", "fsdp1 flat")
KINDS = [("adamw", dict()), ("adamw", dict(fused=True)), ("adam", dict(weight_decay=0.1)), ("sgd", dict(momentum=0.9)),
         ("sgd", dict(momentum=0.9, nesterov=True, weight_decay=0.1)), ("sgd", dict())]
CASES = [("%s, masters, %s %s" % (f, o, k or ""), dict(face=f, optimizer=o, options=k)) for f in FACES for o, k in KINDS]
CASES += [("%s, masters, %s, %s" % (f, o, e), dict(face=f, optimizer=o, event=e, options=k)) for f in FACES for o, k in (KINDS[0], KINDS[3])
          for e in ("written", "resumed", "no gradient") if not (e == "no gradient" and f == "fsdp1 flat")]
CASES += [("%s, masters, odd sizes" % f, dict(face=f, kind="odd")) for f in FACES]
CASES += [("%s, %s %s" % (f, o, k or ""), dict(face=f, optimizer=o, options=k, masters=False)) for f in FACES[1:] for o, k in KINDS]
CASES += [("%s, %s, resumed" % (f, o), dict(face=f, optimizer=o, options=k, masters=False, event="resumed"))
          for f in FACES[1:] for o, k in (KINDS[0], KINDS[3])]


def compare(stock, ours):
    for result in (stock, ours):
        if isinstance(result, Exception):
            raise result
    for a, b in zip(stock, ours):
        same(a, b, "", 0)


def passed(result):
    if isinstance(result, Exception):
        raise result


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    cases = [(s, k) for s, k in CASES if only in s]
    stock, ours = (_ranks.run("own_step_test:train", 2, mode, [k for _, k in cases], 300) for mode in (False, True))
    for (sentence, _), a, b in zip(cases, stock, ours):
        tap.check(sentence, compare, a, b)
    faces = [f for f in FACES if only in "%s, masters, checkpoint" % f]
    for face, result in zip(faces, _ranks.run("own_step_test:saved_and_loaded", 2, True, [{"face": f} for f in faces]) if faces else ()):
        tap.check("%s, masters, checkpoint" % face, passed, result)
    tap.end()


if __name__ == "__main__":
    main()
