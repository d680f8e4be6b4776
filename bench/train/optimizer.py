"""The optimizer step of one CPU rank, torch's modes and our kernels in turns in one process.

    .venv-2.60.0/bin/python bench/train/optimizer.py [--elements 60000000] [--rounds 5] [--threads 1]

CPU milliseconds of the process (the least of the rounds: other programs only add) and the ratio to torch's fused step.
"""
import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tests", "train"), os.path.join(HERE, "..", "..", "python")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--elements", type=int, default=60_000_000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    import _ranks

    _ranks.load_module()
    import torch

    from raylet_c.train import own_step

    torch.set_num_threads(args.threads)
    own_step.install()
    print("| torch %s, %d elements in 30 tensors, %d threads | CPU ms | of torch's fused |\n| --- | --- | --- |" % (
        torch.__version__, args.elements, args.threads))
    for dtype in (torch.float32, torch.bfloat16):
        params = [torch.nn.Parameter(torch.randn(args.elements // 30).to(dtype)) for _ in range(30)]
        for param in params:
            param.grad = torch.randn_like(param)
        kinds = {"AdamW, torch's fused": (torch.optim.AdamW, dict(fused=True), False),
                 "AdamW, torch's default": (torch.optim.AdamW, {}, False)}
        if dtype is torch.float32:  # in bf16 our step is torch's
            kinds["AdamW, ours for fused"] = torch.optim.AdamW, dict(fused=True), True
            kinds["AdamW, ours for the default"] = torch.optim.AdamW, {}, True
            kinds["SGD with momentum, torch's default"] = torch.optim.SGD, dict(momentum=0.9, lr=1e-3), False
            kinds["SGD with momentum, ours"] = torch.optim.SGD, dict(momentum=0.9, lr=1e-3), True
        least = {}
        for name, (cls, options, ours) in kinds.items():  # one after the other: states of all would not fit into a small machine
            optimizer = cls(params, **options)
            if ours:
                fill = optimizer._init_group

                def marked(group, *lists, fill=fill):
                    result = fill(group, *lists)
                    own_step.mark(lists[0])
                    return result

                optimizer._init_group = marked
            for i in range(args.rounds + 2):
                begin = time.process_time()
                optimizer.step()
                if i > 1:
                    least[name] = min(least.get(name, 1e9), (time.process_time() - begin) * 1e3)
            del optimizer
        for name, ms in least.items():
            print("| %s, %s | %.1f | %.2f |" % (str(dtype)[6:], name, ms, ms / least["AdamW, torch's fused"]), flush=True)


if __name__ == "__main__":
    main()
