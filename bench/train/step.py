"""One way of training a Qwen2.5-1.5B shape, timed: run with torchrun, one process a GPU; rank 0 prints one JSON line.

    torchrun --nproc-per-node 2 step.py --kind ours --batch 1

Kinds: fsdp2, fsdp2-compile, fsdp1 (per layer), fsdp1-whole (what Ray's prepare_model gives), ddp, ours, ours-compile, ours-whole, ours-graph;
on one GPU: single, single-compile, single-graph. Every step draws new tokens; ms is the median of the steps after the warm-up, of the slowest
rank. Memory is what the driver says is in use on the device, at its highest.
"""
import argparse
import functools
import json
import os
import statistics
import sys
import threading
import time

import torch
import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))


def model_of(args, device):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=args.layers, num_attention_heads=12,
                         num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=True, rms_norm_eps=1e-6, use_cache=False)
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    with torch.device(device):
        return Qwen2ForCausalLM(config)


def load_ours(clock):
    sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "train"))
    sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
    import _ranks

    _ranks.load_module()
    from raylet_c import train

    if clock:
        clock_ours(clock)

    train.install()


class Clock:
    """Host time of our own functions, by name, with what they call of each other taken off."""

    def __init__(self):
        self.spent, self.calls, self.stack = {}, {}, threading.local()

    def time(self, owner, name):
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args, **kwargs):
            inner = self.stack.__dict__.setdefault("inner", [])
            inner.append(0.0)
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - begin
                own = took - inner.pop()
                if inner:
                    inner[-1] += took
                self.spent[name] = self.spent.get(name, 0) + own
                self.calls[name] = self.calls.get(name, 0) + 1

        setattr(owner, name, timed)

    def clear(self):
        self.spent.clear()
        self.calls.clear()

    def show(self, steps):
        parts = sorted(self.spent.items(), key=lambda x: -x[1])
        return {name: [round(took / steps * 1e3, 3), self.calls[name] // steps] for name, took in parts}


def clock_ours(clock):
    """Before install(): fsdp2 puts its functions into torch's class then."""
    from raylet_c.train import fsdp2, model

    for name in ("_pre_forward", "_post_forward", "_pre_backward", "_cast"):
        clock.time(fsdp2, name)
    for name in ("unit_reduce", "unit_done", "backward_done", "follow_changes"):
        clock.time(fsdp2.Root, name)
    for name in ("begin", "enter", "leave", "reduce", "pre_backward", "_complete", "_end_backward"):
        clock.time(model.Model, name)


def wrap(args, model, device):
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    half = torch.bfloat16
    kind = args.kind.replace("ours", "fsdp2") if args.kind != "ours-whole" else "fsdp1-whole"
    layers = list(model.model.layers)
    if kind.endswith("-compile"):
        for layer in layers:
            layer.compile()
    if kind.startswith("single"):
        return model.to(half)
    if kind.startswith("fsdp2"):
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half)
        for layer in layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        return model
    if kind == "fsdp1":
        wrapping = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={type(layers[0])})
        return FullyShardedDataParallel(model, auto_wrap_policy=wrapping, device_id=device, use_orig_params=True,
                                        mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half))
    if kind == "fsdp1-whole":
        return FullyShardedDataParallel(model.to(half), device_id=device)
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model.to(half), gradient_as_bucket_view=True)
    raise SystemExit("no such kind: " + args.kind)


class Peak(threading.Thread):
    """The highest use of the device's memory, as the driver tells it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.used, self.stopped = 0, threading.Event()

    def look(self):
        free, total = torch.cuda.mem_get_info()
        self.used = max(self.used, total - free)

    def run(self):
        while not self.stopped.wait(0.02):
            self.look()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kind", required=True)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--seq", type=int, default=2048)
    p.add_argument("--layers", type=int, default=28)
    p.add_argument("--steps", type=int, default=14)
    p.add_argument("--profile", action="store_true", help="torch's profiler over two steps")
    p.add_argument("--host", action="store_true", help="host time of our own functions: {name: [ms a step, calls a step]}")
    args = p.parse_args()
    rank = int(os.environ.get("LOCAL_RANK", 0))
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    gpus = torch.cuda.device_count()
    if ranks > gpus:  # for a look at correctness only: NCCL takes each rank for a host of its own and goes through sockets
        os.environ["NCCL_HOSTID"] = "host%d" % rank
    torch.cuda.set_device(rank % gpus)
    device = torch.device("cuda", rank % gpus)
    if not args.kind.startswith("single"):
        dist.init_process_group("nccl", device_id=device)
    clock = Clock() if args.host else None
    if args.kind.startswith("ours"):
        load_ours(clock)
    model = wrap(args, model_of(args, device), device)
    model.train()
    graphed = args.kind.endswith("-graph")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True, capturable=graphed)
    loss_of = torch.nn.functional.cross_entropy

    def step(ids):
        if graphed:  # transformers' own loss and masks are not made for capture
            logits = model(input_ids=ids, attention_mask=None, use_cache=False).logits
            loss = loss_of(logits[:, :-1].reshape(-1, logits.size(-1)).float(), ids[:, 1:].reshape(-1))
        else:
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    run = step
    if args.kind == "ours-graph":
        from raylet_c.train import graph

        run = graph(step)
    elif args.kind == "single-graph":
        run = plain_graph(step, args, device)
    torch.cuda.empty_cache()
    peak = Peak()
    peak.start()
    generator = torch.Generator(device=device).manual_seed(rank)
    times, losses, host = [], [], []
    for i in range(args.steps):
        ids = torch.randint(0, 151936, (args.batch, args.seq), device=device, generator=generator)
        torch.cuda.synchronize()
        if dist.is_initialized():
            dist.barrier()
            torch.cuda.synchronize()
        if clock and i == 6:
            clock.clear()
        begin = time.perf_counter()
        loss = run(ids)
        host.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
    peak.look()
    peak.stopped.set()
    middle = torch.tensor([statistics.median(times[6:]), statistics.median(host[6:]), float(peak.used)], device=device, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(middle, op=dist.ReduceOp.MAX)
    ms, host_ms = middle[0].item() * 1e3, middle[1].item() * 1e3
    engine = None
    if args.kind.startswith("ours"):
        state = model._get_fsdp_state() if hasattr(model, "_get_fsdp_state") else model
        engine = hasattr(state, "_rc_root") and state._rc_root is not None
    if rank == 0:
        print(json.dumps(dict(kind=args.kind, batch=args.batch, ranks=ranks, ms=round(ms, 2), host_ms=round(host_ms, 2),
                              tokens_per_s=round(args.batch * args.seq * ranks / ms * 1e3), device_gib=round(middle[2].item() / 2**30, 2),
                              reserved_gib=round(torch.cuda.max_memory_reserved() / 2**30, 2),
                              allocated_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2), loss=[round(x, 4) for x in losses[:3] + losses[-1:]],
                              engine=engine, graphed=getattr(run, "graph", None) is not None)), flush=True)
    if clock and rank == 0:
        print("host ms", sum(clock.spent.values()) / (args.steps - 6) * 1e3, json.dumps(clock.show(args.steps - 6)), flush=True)
    if args.profile and rank == 0:
        show_profile(run, args, device)
    elif args.profile:
        for _ in range(3):
            run(ids)
        torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def show_profile(run, args, device):
    from torch.profiler import ProfilerActivity, profile

    ids = torch.randint(0, 151936, (args.batch, args.seq), device=device)
    run(ids)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
        for _ in range(2):
            run(ids)
        torch.cuda.synchronize()
    print(p.key_averages().table(sort_by="cuda_time_total", row_limit=22, max_name_column_width=60), flush=True)
    print(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=22, max_name_column_width=60), flush=True)


def plain_graph(step, args, device):
    ids = torch.zeros(args.batch, args.seq, device=device, dtype=torch.long)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(ids)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(ids)

    def run(new):
        ids.copy_(new)
        graph.replay()
        return loss

    return run


if __name__ == "__main__":
    main()
