"""The engine's schedules on GPUs: two levels, secondary shards, quantised messages, units that stay gathered. Groups of GPUs stand for nodes: with
2 GPUs each is a node, with 4 and 8 there are two nodes. TAP on stdout of rank 0.

    torchrun --nproc-per-node N tests/train/schedule_check.py [--no-times]

Slow links: NCCL_P2P_DISABLE=1 (host memory), and NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_NET=Socket (sockets). RAYLET_C_MODULE names the folder of
_train.abi3.so if it is not build/raylet_c.
"""
import argparse
import gc
import os
import statistics
import sys
import time
import traceback

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")]

import _ranks  # noqa: E402

_ranks.load_module()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import schedule_test  # noqa: E402
from raylet_c import train as ours  # noqa: E402
from raylet_c.train import comm as comms  # noqa: E402


def local_ranks():
    return max(1, dist.get_world_size() // 2)


def sharded(options, layers=6, bf16=False):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    gc.collect()
    ours.install(**{**schedule_test.NOTHING, "ranks_per_node": local_ranks(), **options})
    torch.manual_seed(1)
    model = schedule_test.Square(layers).cuda()
    whole = {n: p.detach().clone() for n, p in model.named_parameters()}
    planned = schedule_test.plan(model, model.layers, bf16)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16) if bf16 else MixedPrecisionPolicy()
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model, whole, planned


def ids_of(step, shape=(4, 32)):
    return torch.randint(0, 128, shape, generator=torch.Generator().manual_seed(100 * step + dist.get_rank())).cuda()


def run(options, steps=12, bf16=False, graph=False):
    """(losses, the last step's traffic, the plan)."""
    model, _, planned = sharded(options, bf16=bf16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)

    def step(ids):
        loss = schedule_test.loss_of(model, "square", ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step = ours.graph(step) if graph else step
    losses, traffic = [], [ours.traffic()]
    for i in range(steps):
        losses.append(step(ids_of(i)).item())
        traffic.append(ours.traffic())
    assert hasattr(model._get_fsdp_state(), "_rc_root"), "the run was not the engine's"
    assert not graph or step.graph is not None, "no graph was made: %s" % step.reason
    return losses, {k: traffic[-1][k] - traffic[-2][k] for k in traffic[0]}, planned


def all_to_all():
    """Against torch's, also as part of a graph's capture."""
    comm = comms.connect(None, "cuda", 60.0)
    for count in (0, 1, 16, 4097, 1 << 20):
        send = torch.randint(0, 256, (count * comm.size,), dtype=torch.uint8, device="cuda")
        recv, want = torch.empty_like(send), torch.empty_like(send)
        comm.all_to_all(send.data_ptr(), recv.data_ptr(), count, torch.cuda.current_stream().cuda_stream, "layers.0", "reduce")
        if count:
            dist.all_to_all_single(want, send)
            assert torch.equal(recv, want), count
    comm.close()


def gathers():
    """What a unit's parameters are when it is gathered: the bits of the whole model, or of its messages, the same on all ranks."""
    for options, step_size in ((dict(), 0), (dict(secondary_shard=True), 0), (dict(quantize="gather=int8"), 1 / 127), (dict(quantize="gather=fp8"), 1 / 14)):
        model, whole, _ = sharded(options)
        model(ids_of(0))  # the engine takes the model over
        for again in range(2):
            for number, layer in enumerate(model.layers):
                layer.unshard()
                for name, p in layer.named_parameters():
                    have, want = p.detach(), whole["layers.%d.%s" % (number, name)]
                    same = have.clone()
                    dist.broadcast(same, 0)
                    assert torch.equal(same, have), "ranks compute with other numbers: %s, %s" % (options, name)
                    far = (have - want).abs().max().item()
                    assert far <= step_size / 2 * 1.01 * want.abs().max().item(), "%s: %s is off by %g" % (options, name, far)
                    assert not step_size or far > 0, "%s: nothing was quantised" % options
                layer.reshard()
        del model


def losses():
    """Training in each lossless schedule beside one level: the same but for the order of sums; quantised within 1 %."""
    base = run(dict(two_level=False))[0]
    for options in (dict(), dict(secondary_shard=True), dict(keep_gathered="auto")):
        have = run(options)[0]
        assert all(abs(a - b) <= 2e-4 * a for a, b in zip(base, have)), "%s: %s and %s" % (options, base, have)
    for options in (dict(quantize="int8"), dict(quantize="gather=fp8,reduce=int4"), dict(quantize="int8", secondary_shard=True)):
        have = run(options)[0]
        assert base != have and all(abs(a - b) <= 1e-2 * a for a, b in zip(base, have)), "%s: %s and %s" % (options, base, have)


def graphs():
    """A whole step as one CUDA graph has the losses of the step without one."""
    for options in (dict(), dict(secondary_shard=True), dict(quantize="gather=int8,reduce=int4"), dict(keep_gathered="auto")):
        eager, have = run(options, bf16=True)[0], run(options, bf16=True, graph=True)[0]
        assert all(abs(a - b) <= 1e-3 * a for a, b in zip(eager, have)), "%s: %s and %s" % (options, eager, have)


def traffic():
    """Bytes of a step are those of the plan; a prefetch that was not wanted may add a gather."""
    for options in (dict(), dict(secondary_shard=True), dict(quantize="int8"), dict(quantize="gather=int8,reduce=int4", secondary_shard=True)):
        _, seen, planned = run(options, bf16=True)
        print("# %s: %d bytes between nodes, %.3f of the parameters' a node; planned %d" % (
            options, seen["between"], seen["between"] * local_ranks() / planned["whole"], planned["between"]), flush=True)
        if seen["gathers"] == planned["gathers"]:
            for name in ("within", "between"):
                if local_ranks() > 1 or options:
                    assert seen[name] == planned[name], (options, seen, planned)
        else:
            assert seen["gathers"] <= planned["gathers"] + 2, (options, seen, planned)


def kept():
    """Units stay gathered once it is known that memory is free."""
    few, many = run(dict(keep_gathered="auto"))[1]["gathers"], run(dict())[1]["gathers"]
    assert few < many, (few, many)
    print("# gathers a step: %d, %d where units stay" % (many, few), flush=True)


def times():
    """Milliseconds of a gather and a reduction of a unit of 64 Mi parameters in bf16, in each schedule: run it with slow links too."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for options in (dict(two_level=False), dict(), dict(secondary_shard=True), dict(quantize="int8"), dict(quantize="gather=int8,reduce=int4")):
        gc.collect()
        ours.install(**{**schedule_test.NOTHING, "ranks_per_node": local_ranks(), **options})
        model = torch.nn.Sequential(*[torch.nn.Linear(8192, 2048, bias=False) if i % 2 == 0 else torch.nn.Linear(2048, 8192, bias=False)
                                      for i in range(4)]).cuda()
        for layer in model:
            fully_shard(layer, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16))
        fully_shard(model)
        x = torch.randn(8, 8192, device="cuda")
        samples = []
        for _ in range(12):
            torch.cuda.synchronize()
            dist.barrier()
            begin = time.perf_counter()
            model(x).sum().backward()
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - begin) * 1e3)
            model.zero_grad()
        if dist.get_rank() == 0:
            print("# %-60s %8.2f ms" % (options or "two levels", statistics.median(samples[4:])), flush=True)
        del model


CASES = {
    all_to_all: "an all-to-all has the bits of torch's",
    gathers: "gathered parameters are the whole model's, or those of the messages, on all ranks",
    losses: "each schedule trains as one level does",
    graphs: "each schedule is captured into a CUDA graph",
    traffic: "bytes are those of the plan",
    kept: "units stay gathered while memory is free",
    times: "times",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-times", action="store_true")
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # gloo tells the outcome, so that a fault in one case does not reach the next; NCCL of torch for comparison.
    dist.init_process_group("cpu:gloo,cuda:nccl")
    if dist.get_world_size() < 2 or dist.get_world_size() % 2:
        raise SystemExit("an even number of GPUs is wanted")
    ours.install()
    failed = count = 0
    for function, sentence in CASES.items():
        if args.no_times and function is times:
            continue
        text = None
        try:
            function()
        except Exception:
            text = traceback.format_exc()
            print("# rank %d: %s" % (dist.get_rank(), text.replace("\n", "\n# ")), flush=True)
        bad = torch.tensor([text is not None], dtype=torch.int32)
        dist.all_reduce(bad)
        count += 1
        failed += bool(bad.item())
        if dist.get_rank() == 0:
            print("%sok %d - %s" % ("not " if bad.item() else "", count, sentence), flush=True)
    if dist.get_rank() == 0:
        print("1..%d" % count, flush=True)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
