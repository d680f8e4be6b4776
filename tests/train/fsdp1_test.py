"""FullyShardedDataParallel on the engine against torch's own: the same losses and weights, bit for bit on 2 ranks, for each model and mode.

    python tests/train/fsdp1_test.py [TEXT]      only cases whose name holds TEXT
"""
import contextlib
import datetime
import functools
import logging
import sys
import tempfile
import time
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

import _ranks
import fsdp2_test
from fsdp2_test import Block, Plain

# Models


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 10, 3, padding=1)
        self.layers = nn.ModuleList([Residual(10) for _ in range(3)])
        self.head = nn.Linear(10, 7)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean((2, 3)))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 24))
        self.places = nn.Parameter(torch.randn(1, 5, 24))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(24, 4, 40, 0.0, batch_first=True, norm_first=True) for _ in range(3)])
        self.head = nn.Linear(24, 7)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


class Reordered(Plain):
    """Layers used in another order than they are defined in, the first of them twice."""

    def forward(self, ids):
        x = self.embed(ids)
        for i in (0, 4, 3, 0, 2, 1):
            x = self.layers[i](x)
        return self.head(self.norm(x))


class Partly(Plain):
    """The last layer has parameters that are never used, and one of two outputs is not."""

    def __init__(self):
        super().__init__()
        self.layers[1].spare = nn.Parameter(torch.randn(7, 5))
        self.layers[2] = Pair()

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers[:2]:
            x = layer(x)
        x, _ = self.layers[2](x)
        return self.head(self.norm(x))


class Branches(Plain):
    """Whether all parameters of a layer are used depends on the batch, so on the rank."""

    def __init__(self):
        super().__init__()
        for layer in self.layers:
            layer.path = nn.Linear(32, 32)
            layer.register_forward_pre_hook(lambda layer, args: layer.path(args[0]) if self.taken else args)

    def forward(self, ids):
        self.taken = int(ids[0, 0]) % 2 == 1
        return super().forward(ids)


class Pair(Block):
    def __init__(self):
        super().__init__(32, 64)
        self.other = nn.Linear(32, 3)

    def forward(self, x):
        return super().forward(x), self.other(x)


class Scaled(Plain):
    """With a buffer that takes part."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 32))

    def forward(self, ids):
        x = self.embed(ids)
        x = x * self.scale.to(x.dtype)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build(kind):
    own = {"resnet": ResNet, "vit": ViT, "partly": Partly, "scaled": Scaled, "branches": Branches, "reordered": lambda: Reordered(layers=5)}
    if kind not in own:
        return fsdp2_test.build(kind)
    torch.manual_seed(1)
    model = own[kind]()
    return model, list(model.layers)


# What each rank does


def batch(kind, data):
    """(arguments of the model, targets)"""
    if kind in ("resnet", "vit"):
        return {"x": torch.randn(3, 3, 8, 8, generator=data)}, torch.randint(0, 7, (3,), generator=data)
    ids = torch.randint(0, 60, (2, 12), generator=data)
    return {"input_ids" if kind in ("qwen2", "llama") else "ids": ids}, ids[:, 1:].reshape(-1)


def loss_of(model, kwargs, targets):
    output = model(**kwargs)
    logits = getattr(output, "logits", output).float()
    return F.cross_entropy(logits if logits.dim() == 2 else logits[:, :-1].reshape(-1, logits.shape[-1]), targets)


def precision(classes=(), **kwargs):
    from torch.distributed.fsdp import MixedPrecision

    kwargs = {k: getattr(torch, v) if isinstance(v, str) else v for k, v in kwargs.items()}
    if classes:
        kwargs["_module_classes_to_ignore"] = [getattr(nn, name) for name in classes]
    return MixedPrecision(**kwargs)


def wrapped(kind, bf16=False, mp=None, wrap="layers", strategy="FULL_SHARD", orig=False, checkpoint=None, ignore=None, meta=False,
            sync=False, hook=False, channels_last=False):
    import torch.distributed as dist
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointImpl,
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy, transformer_auto_wrap_policy

    model, layers = build(kind)
    if bf16:
        model = model.bfloat16()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    classes = {type(layer) for layer in layers}
    kwargs = dict(use_orig_params=orig, device_id=torch.device("cpu"), sharding_strategy=ShardingStrategy[strategy],
                  mixed_precision=precision(**mp) if mp else None)
    kwargs["auto_wrap_policy"] = {
        "none": None,
        "layers": functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes),
        "nested": ModuleWrapPolicy(classes | {nn.Linear}),
        "size": functools.partial(size_based_auto_wrap_policy, min_num_params=1500),
        "by hand": None,
    }[wrap]
    if ignore == "modules":
        kwargs["ignored_modules"] = [layers[0].norm]
    if ignore == "states":
        kwargs["ignored_states"] = [layers[0].up.weight]
    if meta:  # rank 0 has the weights
        kwargs["sync_module_states"] = True
        if dist.get_rank():
            model = model.to("meta")
            kwargs["param_init_fn"] = lambda module: module.to_empty(device=torch.device("cpu"), recurse=False)
    if sync:
        kwargs["sync_module_states"] = True
        with torch.no_grad():
            for p in model.parameters():
                p.add_(dist.get_rank())
    if "HYBRID" in strategy:  # two replicas on four ranks
        shape = dist.get_world_size() // 2, 2
        kwargs["device_mesh"] = dist.init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    impl = {"reentrant": CheckpointImpl.REENTRANT}.get(checkpoint, CheckpointImpl.NO_REENTRANT)
    if wrap == "by hand":  # each layer, inside of its checkpoint
        for i, layer in enumerate(layers):
            inner = FullyShardedDataParallel(layer, **kwargs)
            model.layers[i] = checkpoint_wrapper(inner, impl) if checkpoint else inner
    model = FullyShardedDataParallel(model, **kwargs)
    if checkpoint and wrap != "by hand":
        apply_activation_checkpointing(model, checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=impl),
                                       check_fn=lambda m: type(m) in classes)
    if hook:
        register_hook(model)
    return model


def register_hook(model):
    from torch.distributed.algorithms._comm_hooks import default_hooks

    model.register_comm_hook(default_hooks.DefaultState(process_group=torch.distributed.group.WORLD), default_hooks.reduce_scatter_hook)


class Run:
    """One rank's training; acts are called with it after "backward" and after "step"."""

    def __init__(self, kind, optimizer, scaler, offload, compiled, **kwargs):
        import torch.distributed as dist
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        self.offload = offload  # what torch's own cannot on the CPU: full parameters "offloaded" to it
        self.kind, self.optimizer, self.orig, self.rank = kind, optimizer, kwargs.get("orig", False), dist.get_rank()
        self.scaler = ShardedGradScaler(device="cpu", init_scale=1024.0) if scaler else None
        self.data = torch.Generator().manual_seed(10 + self.rank)
        self.seen = []  # what is compared
        self.kept = None  # by an act for a later one
        self.begin(wrapped(kind, **kwargs))
        self.compiled = torch.compile(self.model, backend="eager") if compiled else self.model

    def begin(self, model):
        self.model = model
        params = [p for p in model.parameters() if p.requires_grad]
        self.opt = torch.optim.AdamW(params, lr=1e-2) if self.optimizer == "adamw" else torch.optim.SGD(params, lr=0.1, momentum=0.9)

    def backward(self):
        arguments, targets = batch(self.kind, self.data)
        loss = loss_of(self.compiled, arguments, targets)
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        return loss.item()

    def step(self, set_to_none):
        if self.scaler:
            self.scaler.step(self.opt)
            self.scaler.update()
        else:
            self.opt.step()
        self.opt.zero_grad(set_to_none=set_to_none)

    def evaluate(self):
        arguments, targets = batch(self.kind, torch.Generator().manual_seed(3))
        with torch.no_grad():
            self.seen.append(loss_of(self.model, arguments, targets).item())

    def weights(self, **kwargs):
        from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

        with FullyShardedDataParallel.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(**kwargs)):
            return {k: v.detach().clone() for k, v in self.model.state_dict().items()}

    def grads(self):
        """This rank's, those of frozen parameters and of other ranks left out."""
        return {k: p.grad.clone() for k, p in self.model.named_parameters() if p.grad is not None}


def act_evaluate(at, step, run):
    if at == "step":
        run.evaluate()


def act_eval_mode(at, step, run):
    if at == "step":
        run.model.eval()
        run.evaluate()
        run.model.train()


def act_summon(at, step, run):
    """Full parameters read, and written, between steps."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    if at == "backward" and run.orig:
        with FSDP.summon_full_params(run.model, writeback=False, with_grads=True):
            run.seen += [p.grad.sum().item() for p in run.model.parameters() if p.grad is not None]
    if at == "step":
        with FSDP.summon_full_params(run.model):
            run.seen += [p.sum().item() for p in run.model.parameters()]
            with torch.no_grad():
                run.model.head.weight.mul_(0.9)
        with FSDP.summon_full_params(run.model, writeback=False, rank0_only=True, offload_to_cpu=run.offload):
            run.seen.append(sum(p.sum().item() for p in run.model.parameters()))
        with FSDP.summon_full_params(run.model.layers[1] if hasattr(run.model, "layers") else run.model, recurse=False, writeback=False):
            pass


def act_state_dict(at, step, run, type_="FULL_STATE_DICT"):
    """Saved after step 1, loaded again after step 2, with the optimizer's state."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import StateDictType

    if at == "step":
        with FSDP.state_dict_type(run.model, StateDictType[type_]):
            if step == 1:
                # What is not offloaded or cloned belongs to the model.
                local = type_ == "LOCAL_STATE_DICT"  # has no form for optimizers
                run.kept = copied(run.model.state_dict()), None if local else copied(FSDP.optim_state_dict(run.model, run.opt))
            if step == 2:
                run.model.load_state_dict(run.kept[0])
                if run.kept[1] is not None:
                    run.opt.load_state_dict(FSDP.optim_state_dict_to_load(run.model, run.opt, run.kept[1]))
        if step == 2:
            run.evaluate()


def act_sharded_state_dict(at, step, run):
    act_state_dict(at, step, run, "SHARDED_STATE_DICT")


def act_local_state_dict(at, step, run):
    act_state_dict(at, step, run, "LOCAL_STATE_DICT")


def act_disk(at, step, run):
    """torch.distributed.checkpoint through its state_dict functions, and a full file of rank 0."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    if at == "step" and step == 1:
        run.kept = shared_folder()
        model, opt = get_state_dict(run.model, run.opt)
        dcp.save({"model": model, "opt": opt}, checkpoint_id=run.kept)
    if at == "step" and step == 2:
        model, opt = get_state_dict(run.model, run.opt)
        both = {"model": model, "opt": opt}
        dcp.load(both, checkpoint_id=run.kept)
        set_state_dict(run.model, run.opt, model_state_dict=both["model"], optim_state_dict=both["opt"])
        run.evaluate()


def act_forward_between(at, step, run):
    """Forward passes between backward and step: gradients stay, and the next step does not compute with what was gathered for them."""
    if at == "backward":
        before = run.grads()
        arguments, targets = batch(run.kind, torch.Generator().manual_seed(4))
        loss_of(run.model, arguments, targets)  # its graph is thrown away
        with torch.no_grad():
            loss_of(run.model, arguments, targets)
        for key, grad in run.grads().items():
            assert torch.equal(grad, before[key]), key


def act_hold_grads(at, step, run):
    """Gradients that the user keeps do not change, nor are they freed."""
    if at == "backward":
        if run.kept:
            for grad, copy in run.kept:
                assert torch.equal(grad, copy)
        run.kept = [(p.grad, p.grad.clone()) for p in run.model.parameters() if p.grad is not None]


def act_twice(at, step, run):
    """Two forward passes, then one backward pass over both."""
    if at == "backward":
        sum(loss_of(run.model, *batch(run.kind, run.data)) for _ in range(2)).backward()


def act_own_grads(at, step, run):
    """Gradients replaced by the user's own, then added to."""
    if at == "backward":
        for p in run.model.parameters():
            if p.grad is not None:
                p.grad = p.grad * 0.5
        run.backward()


def act_freeze(at, step, run):
    if at == "step":
        for name, p in run.model.named_parameters():
            if "1" in name:
                p.requires_grad_(step % 2 == 1)


def act_replace(at, step, run):
    """Parameters' memory replaced under us."""
    if at == "step":
        for p in run.model.parameters():
            p.data = p.data.clone() * 0.9


def act_scale(at, step, run):
    if at == "step":
        for p in run.model.parameters():
            p.data.mul_(0.9)


def act_apply(at, step, run):
    """Module.apply with full parameters, and moves that change nothing."""
    if at == "step":
        run.model.apply(lambda m: m.weight.data.mul_(0.9) if isinstance(m, nn.LayerNorm) else None)
        run.model.to(torch.device("cpu"))
        run.model.float()
        run.model.requires_grad_(True)


def act_error(at, step, run):
    """An exception in the middle of forward; the next step goes on."""
    if at == "step":
        def fail(module, args):
            raise ZeroDivisionError

        last = [m for m in run.model.modules() if isinstance(m, Block)][-1]
        hook = last.register_forward_pre_hook(fail)
        try:
            run.evaluate()
        except ZeroDivisionError:
            pass
        hook.remove()


def act_comm_hook(at, step, run):
    if at == "backward" and step == 1:
        register_hook(run.model)


def act_inner(at, step, run):
    """An inner instance alone, outside of the root's forward; methods that users call."""
    if at == "step":
        with torch.no_grad():
            run.seen.append(run.model.layers[1](torch.ones(2, 5, 32)).sum().item())
        run.seen += [run.model.check_is_root(), len(type(run.model).fsdp_modules(run.model)), run.model.module.head.in_features]


def copied(tree):
    from torch.utils._pytree import tree_map

    return tree_map(lambda t: t.clone() if type(t) is torch.Tensor else t, tree)


def shared_folder():
    import torch.distributed as dist

    name = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(name)
    return name[0]


def train(kind="plain", steps=4, clip=None, accumulate=1, sync=True, optimizer="adamw", set_to_none=True, act=None, scaler=False,
          offload=False, says=None, compiled=False, **kwargs):
    """act: what happens between, the end of a name act_..."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("raylet_c.train").addHandler(handler)
    run = Run(kind, optimizer, scaler, offload, compiled, **kwargs)
    act = globals()["act_" + act] if act else lambda *_: None
    for step in range(steps):
        for micro in range(accumulate):
            unsynced = sync and micro < accumulate - 1 and not (sync == "first" and micro == 0)
            with run.model.no_sync() if unsynced else contextlib.nullcontext():
                run.seen.append(run.backward())
        act("backward", step, run)
        if clip:
            if run.scaler:
                run.scaler.unscale_(run.opt)
            run.seen.append(run.model.clip_grad_norm_(clip).item())
        run.step(set_to_none)
        act("step", step, run)
    logging.getLogger("raylet_c.train").removeHandler(handler)
    root = run.model.__dict__.get("_rc_root")
    buffers = {k: b.clone() for k, b in run.model.named_buffers()}
    return {"losses": run.seen, "weights": run.weights(rank0_only=False), "buffers": buffers, "ours": root is not None, "said": said,
            "grad bytes": sum(u.grad_chunk * u.spec.dtype.itemsize for u in root.model.units) if root else None}


def one_process(orig):
    """(norms of clip_grad_norm_, those of one process that has the ranks' batches)"""
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    model, alone = wrapped("tied", orig=orig), build("tied")[0]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, alone)]
    data = [torch.Generator().manual_seed(10 + r) for r in range(dist.get_world_size())]
    norms = []
    for step in range(3):
        batches = [batch("tied", d) for d in data]
        loss_of(model, *batches[dist.get_rank()]).backward()
        (sum(loss_of(alone, *b) for b in batches) / len(batches)).backward()
        norms.append((model.clip_grad_norm_(0.5).item(), nn.utils.clip_grad_norm_(alone.parameters(), 0.5).item()))
        for opt in optimizers:
            opt.step()
            opt.zero_grad()
    assert isinstance(model, FullyShardedDataParallel) and model._rc_root
    return norms


def lone_state_dict(seconds):
    """Rank 0 alone asks for the full state, the other goes on with training: what each is told, and after how long."""
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    group = dist.new_group(timeout=datetime.timedelta(seconds=seconds))
    model = FullyShardedDataParallel(build("plain")[0], process_group=group, device_id=torch.device("cpu"))
    data = torch.Generator().manual_seed(1)
    loss_of(model, *batch("plain", data)).backward()
    begin = time.monotonic()
    try:
        if dist.get_rank() == 0:
            model.state_dict()
        else:
            loss_of(model, *batch("plain", data))
    except Exception as error:
        return str(error), time.monotonic() - begin
    return None, time.monotonic() - begin


BOTH = [dict(orig=False), dict(orig=True)]

# A third entry: what torch's own is given instead, where it refuses on the CPU or goes on with what it has gathered before.
CASES = [
    ("whole model", dict(wrap="none")),
    ("whole model, bf16 weights", dict(wrap="none", bf16=True)),
    ("layers", dict()),
    ("odd sizes", dict(kind="odd")),
    ("tied weights", dict(kind="tied")),
    ("tied weights that no shard holds whole", dict(kind="tied", wrap="none")),
    ("deep", dict(kind="deep")),
    ("qwen2, tied", dict(kind="qwen2")),
    ("llama, untied", dict(kind="llama")),
    ("convolutions and batch norms", dict(kind="resnet")),
    ("vision transformer", dict(kind="vit")),
    ("layers used in another order, one twice", dict(kind="reordered")),
    ("parameters and outputs that are not used", dict(kind="partly")),
    ("parameters used by some ranks", dict(kind="branches")),
    ("SHARD_GRAD_OP, parameters used by some ranks", dict(kind="branches", strategy="SHARD_GRAD_OP")),
    ("nested units", dict(wrap="nested")),
    ("units by size", dict(wrap="size")),
    ("units by hand", dict(wrap="by hand")),
    ("bf16 weights", dict(bf16=True)),
    ("bf16 mixed", dict(mp=dict(param_dtype="bfloat16"))),
    ("bf16 mixed, f32 reduce", dict(mp=dict(param_dtype="bfloat16", reduce_dtype="float32"))),
    ("bf16 reduce", dict(mp=dict(reduce_dtype="bfloat16"))),
    ("bf16 mixed, buffers in bf16", dict(kind="scaled", mp=dict(param_dtype="bfloat16", buffer_dtype="bfloat16"))),
    ("bf16 mixed, buffers as they are", dict(kind="scaled", mp=dict(param_dtype="bfloat16"))),
    ("bf16 mixed, inputs of units cast", dict(kind="vit", mp=dict(param_dtype="bfloat16", cast_forward_inputs=True,
                                                                  cast_root_forward_inputs=False))),
    ("bf16 mixed, norms not", dict(mp=dict(param_dtype="bfloat16", classes=["LayerNorm"]))),
    ("bf16 mixed, low precision gradients", dict(mp=dict(param_dtype="bfloat16", keep_low_precision_grads=True), optimizer="sgd",
                                                 accumulate=2, sync=False)),
    ("f16 mixed, scaled", dict(mp=dict(param_dtype="float16"), scaler=True)),
    ("f16 mixed, scaled, clipped", dict(mp=dict(param_dtype="float16"), scaler=True, clip=0.5)),
    ("SHARD_GRAD_OP", dict(strategy="SHARD_GRAD_OP")),
    ("SHARD_GRAD_OP, tied, evaluation", dict(strategy="SHARD_GRAD_OP", kind="tied", act="evaluate")),
    ("SHARD_GRAD_OP, full parameters", dict(strategy="SHARD_GRAD_OP", act="summon")),
    ("SHARD_GRAD_OP, forward between backward and step", dict(strategy="SHARD_GRAD_OP", act="forward_between"), dict(act=None)),
    ("SHARD_GRAD_OP, no_sync", dict(strategy="SHARD_GRAD_OP", accumulate=2)),
    ("activation checkpoints", dict(checkpoint="plain")),
    ("activation checkpoints, reentrant", dict(checkpoint="reentrant", kind="vit")),
    ("activation checkpoints around units", dict(checkpoint="plain", wrap="by hand")),
    ("activation checkpoints around units, reentrant", dict(checkpoint="reentrant", wrap="by hand")),
    ("clipping", dict(clip=0.5)),
    ("no_sync", dict(accumulate=3)),
    ("no_sync, gradients zeroed in place", dict(accumulate=2, set_to_none=False, optimizer="sgd")),
    ("no_sync, bf16 mixed, f32 reduce", dict(accumulate=2, mp=dict(param_dtype="bfloat16", reduce_dtype="float32"))),
    ("no_sync after a pass with communication", dict(accumulate=3, sync="first")),
    ("accumulation with communication", dict(accumulate=3, sync=False)),
    ("sgd, gradients zeroed in place", dict(optimizer="sgd", set_to_none=False)),
    ("ignored modules", dict(ignore="modules")),
    ("ignored parameters", dict(ignore="states")),
    ("weights of rank 0, others on the meta device", dict(meta=True), dict(meta=False)),
    ("weights of rank 0", dict(sync=True), dict(sync=False)),
    ("evaluation", dict(act="evaluate")),
    ("eval()", dict(act="eval_mode", kind="resnet")),
    ("full parameters read and written", dict(act="summon")),
    ("full parameters of rank 0 on the CPU", dict(act="summon", offload=True), dict(offload=False)),
    ("full state dicts", dict(act="state_dict")),
    ("full state dicts, tied", dict(act="state_dict", kind="tied")),
    ("sharded state dicts", dict(act="sharded_state_dict")),
    ("checkpoints on disk", dict(act="disk")),
    ("forward between backward and step", dict(act="forward_between"), dict(act=None)),
    ("gradients held by the user", dict(act="hold_grads")),
    ("two forward passes, two backward passes", dict(act="twice")),
    ("gradients of the user's own", dict(act="own_grads")),
    ("frozen and thawed", dict(act="freeze", optimizer="sgd")),
    ("memory of parameters replaced", dict(act="replace"), dict(act="scale")),
    ("apply()", dict(act="apply")),
    ("an exception in forward", dict(act="error"), dict(act=None)),
    ("torch.compile", dict(compiled=True)),
    ("an inner instance alone", dict(act="inner")),
]
CASES = [(name + (", original parameters" if more["orig"] else ""), dict(kwargs, **more), *stock)
         for name, kwargs, *stock in CASES for more in BOTH]
CASES += [
    ("local state dicts", dict(act="local_state_dict")),
    ("lora", dict(orig=True, kind="lora")),
    ("lora, whole model", dict(orig=True, kind="lora", wrap="none")),
    ("lora, no_sync", dict(orig=True, kind="lora", accumulate=2)),
    ("lora, full parameters", dict(orig=True, kind="lora", act="summon")),
    ("lora, accumulation with communication", dict(orig=True, kind="lora", accumulate=2, sync=False)),
    ("frozen embedding", dict(orig=True, kind="frozen_embed")),
]
CASES += [("HYBRID_SHARD", dict(strategy="HYBRID_SHARD", act="state_dict")),
          ("_HYBRID_SHARD_ZERO2", dict(strategy="_HYBRID_SHARD_ZERO2", orig=True))]
# Left to torch, with a line that says why.
CASES += [
    ("NO_SHARD", dict(strategy="NO_SHARD", says="sharding_strategy=NO_SHARD is not served")),
    ("channels last", dict(kind="resnet", channels_last=True, says="parameters that are not contiguous (")),
    ("a communication hook", dict(hook=True, says="register_comm_hook is not served")),
    ("a communication hook in the middle", dict(act="comm_hook", says="goes back to torch's own here: register_comm_hook")),
    ("a communication hook in the middle, original parameters", dict(act="comm_hook", orig=True,
                                                                     says="goes back to torch's own here: register_comm_hook")),
]
OTHER_RANKS = ("whole model", "odd sizes", "odd sizes, original parameters", "qwen2, tied", "lora", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def compare(ranks, kwargs, stock, ours):
    for result in (stock, ours):
        if isinstance(result, Exception):
            raise result
    says = kwargs.get("says") or "one rank (which shards nothing)"
    assert not stock[0]["ours"]
    for result in ours:
        if ranks == 1 or "says" in kwargs:
            assert not result["ours"] and len(result["said"]) == 1 and says in result["said"][0], "it was said: %s" % result["said"]
        else:
            assert result["ours"] and not result["said"], "the run was not the engine's: %s" % result["said"]
            if kwargs.get("kind") == "lora":
                trained = sum(v.numel() * v.element_size() for k, v in result["weights"].items() if k.endswith((".a", ".b")))
                # A rank has at most all of a unit's; alignment adds a little.
                assert result["grad bytes"] <= trained + 4 * 512, "gradients take %d bytes of %d" % (result["grad bytes"], trained)
    # In another order of summation the last bit may differ: torch's reduction over gloo is in ring order.
    exact = ranks <= 2
    for r in range(len(stock)):
        for a, b in zip(stock[r]["losses"], ours[r]["losses"]):
            assert a == b if exact else abs(a - b) <= 2e-5 * max(1, abs(a)), (
                "losses of rank %d differ: %s and %s" % (r, stock[r]["losses"], ours[r]["losses"]))
        for what in ("weights", "buffers"):
            assert stock[r][what].keys() == ours[r][what].keys()
            for key, a in stock[r][what].items():
                b = ours[r][what][key]
                assert same(a, b) if exact else torch.allclose(a.float(), b.float(), rtol=1e-3, atol=2e-3), (
                    "%s of %s differ by %g" % (what, key, (a.float() - b.float()).abs().max()))


def results(what, cases):
    for result in _ranks.run("fsdp1_test:" + what, 2, True, cases, timeout=200):
        if isinstance(result, Exception):
            raise result
        yield result


def check_norms():
    for case in results("one_process", [dict(orig=False), dict(orig=True)]):
        for ours, alone in case[0] + case[1]:
            assert abs(ours - alone) <= 1e-5 * alone, "the norm is %r, of one process %r" % (ours, alone)


def check_lone():
    limit = 5
    for case in results("lone_state_dict", [dict(seconds=limit)]):
        for rank, (error, seconds) in enumerate(case):
            assert error and seconds < 4 * limit, "rank %d was told %s after %g s" % (rank, error, seconds)
        assert "the root" in case[1][0], "rank 1 was told %s" % case[1][0]


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    for ranks in (2, 1, 3, 4):
        cases = [("FullyShardedDataParallel, %d ranks, %s: torch's losses and weights" % (ranks, name), kwargs, *stock)
                 for name, kwargs, *stock in CASES
                 if ranks == 2 or name in OTHER_RANKS and (ranks == 4 or "HYBRID" not in name) and (ranks > 1 or name != "lora")]
        cases = [c for c in cases if only in c[0]]
        if not cases:
            continue
        stock = _ranks.run("fsdp1_test:train", ranks, False, [dict(c[1], **(c[2] if c[2:] else {})) for c in cases], timeout=600)
        ours = _ranks.run("fsdp1_test:train", ranks, True, [c[1] for c in cases], timeout=600)
        for (sentence, kwargs, *_), a, b in zip(cases, stock, ours):
            tap.check(sentence, compare, ranks, kwargs, a, b)
    for sentence, check in (("the norm of clip_grad_norm_ is that of one process", check_norms),
                            ("a full state dict that rank 0 asks for alone is an error on all ranks, within the timeout", check_lone)):
        if only in sentence:
            tap.check("FullyShardedDataParallel: " + sentence, check)
    tap.end()


if __name__ == "__main__":
    main()
