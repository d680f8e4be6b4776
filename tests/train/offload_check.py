"""fully_shard with CPUOffloadPolicy on GPUs: against torch's own in the same process, device memory, and pinned memory, which goes with the
model. For 1 GPU or more:

    torchrun --nproc-per-node 1 tests/train/offload_check.py [--width 1024] [--layers 8]

RAYLET_C_MODULE names the folder of _train.abi3.so if it is not build/raylet_c. TAP on stdout of rank 0.
"""
import argparse
import gc
import os
import sys
import time
import traceback

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")]

import _ranks  # noqa: E402

_ranks.load_module()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard  # noqa: E402

from raylet_c import train  # noqa: E402


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate, self.up, self.down = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(torch.sigmoid(self.gate(y)) * self.up(y))


def build(options, offload, half):
    torch.manual_seed(1)
    with torch.device("cpu" if offload else "cuda"):
        model = nn.Sequential(*(Block(options.width) for _ in range(options.layers)), nn.Linear(options.width, 7))
    policy = dict(offload_policy=CPUOffloadPolicy() if offload else OffloadPolicy())
    if half:
        policy["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in model[:-1]:
        fully_shard(block, **policy)
    return fully_shard(model, **policy)


def run(options, offload=True, half=False, steps=4, passes=1):
    """(losses, local weights, device bytes between steps, milliseconds a step, the engine's model or None)."""
    model = build(options, offload, half)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator("cuda").manual_seed(10 + dist.get_rank())
    losses, begin = [], time.perf_counter()
    for step in range(steps):
        if step == steps - 2:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        for _ in range(passes):
            loss = model(torch.randn(64, options.width, generator=data, device="cuda")).float().square().mean()
            loss.backward()
        assert all((p.grad.to_local().device.type == "cpu") == offload for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    took = (time.perf_counter() - begin) / 2 * 1e3
    torch.cuda.synchronize()
    root = getattr(model._get_fsdp_state(), "_rc_root", None)
    weights = [p.to_local().detach().cpu().clone() for p in model.parameters()]
    return losses, weights, torch.cuda.memory_allocated(), took, root and root.model


def compare(stock, ours):
    assert stock[4] is None and ours[4] is not None and ours[4].offload, "the engine did not serve it"
    same = all(torch.equal(a, b) for a, b in zip(stock[1], ours[1]))
    print("# bits %s; a step: torch's %.1f ms, ours %.1f ms" % ("are torch's" if same else "differ", stock[3], ours[3]))
    assert all(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(stock[0], ours[0])), (stock[0], ours[0])
    for a, b in zip(stock[1], ours[1]):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


def mapped():
    """Bytes of anonymous shared memory, which is where host.py's lies."""
    total = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "/dev/zero" in line:
                begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                total += end - begin
    return total


def memory(options):
    gc.collect()
    torch.cuda.empty_cache()
    base = torch.cuda.memory_allocated()
    on_device = run(options, offload=False)
    kept = on_device[2] - base
    del on_device
    sizes = []
    for _ in range(3):
        result = run(options)
        on_host, device = mapped(), result[2] - base
        shards = sum(u.shard.nbytes + u.grad.nbytes for u in result[4].units)
        del result
        gc.collect()
        sizes.append((device, on_host - mapped()))  # what goes with the model: torch keeps mappings of this kind too
    print("# device bytes between steps: %d without offload, %s with; pinned %s, of shards and gradients %d" % (
        kept, [d for d, _ in sizes], [p for _, p in sizes], shards))
    assert all(d < 0.6 * kept for d, _ in sizes), "what is offloaded takes device memory"
    assert all(p >= shards for _, p in sizes), "pinned memory that goes with a model: %s of %d" % (sizes, shards)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.use_deterministic_algorithms(True, warn_only=True)
    modes = {"f32": {}, "bf16 gathered, f32 reduced": dict(half=True), "two backward passes": dict(passes=2)}
    stock = {name: run(options, **mode) for name, mode in modes.items()}
    train.install()
    cases = [(name, lambda name=name, mode=mode: compare(stock[name], run(options, **mode))) for name, mode in modes.items()]
    cases.append(("memory of the device and of the host", lambda: memory(options)))
    failed = 0
    if dist.get_rank():
        sys.stdout = open(os.devnull, "w")
    for number, (name, case) in enumerate(cases, 1):
        try:
            case()
            print("ok %d - offload: %s" % (number, name), flush=True)
        except Exception:
            failed += 1
            print("# " + "\n# ".join(traceback.format_exc().splitlines()))
            print("not ok %d - offload: %s" % (number, name), flush=True)
    print("1..%d" % len(cases), flush=True)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
