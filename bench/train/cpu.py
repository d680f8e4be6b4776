"""CPU ranks of one host, torch's fully_shard over gloo and ours, in turns in the same processes.

    .venv-2.60.0/bin/python bench/train/cpu.py [--ranks 2] [--rounds 5]

Prints a table: a training step of a small Qwen2 (the median of rounds, of the slowest rank), and GiB/s of gather and reduce-scatter (bytes of the
whole message over the time of one).
"""
import argparse
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "train"))


def work(rounds=5, steps=3):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from transformers import Qwen2Config, Qwen2ForCausalLM

    import _ranks

    _ranks.load_module()
    from raylet_c import train
    from raylet_c.train import comm

    def build():
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(Qwen2Config(vocab_size=2048, hidden_size=256, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=4,
                                             num_key_value_heads=2, tie_word_embeddings=True, use_cache=False))
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        ids = torch.randint(0, 2048, (1, 32), generator=torch.Generator().manual_seed(dist.get_rank()))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step():
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()

        return step

    stock = build()
    stock()
    train.install()
    ours = build()
    ours()
    times = {"stock": [], "ours": []}
    losses = {}
    for _ in range(rounds):
        for name, step in (("stock", stock), ("ours", ours)):
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(steps):
                losses[name] = step()
            times[name].append((time.perf_counter() - begin) / steps)
    result = {"step": {k: statistics.median(v) for k, v in times.items()}, "losses": losses}
    size, ranks = 1 << 24, dist.get_world_size()  # elements of the whole message: 64 MiB
    c = comm.connect(dist.group.WORLD, torch.device("cpu"))
    window = torch.frombuffer(c.window(size * 4).memory, dtype=torch.float32)
    chunk, whole = window[: size // ranks], torch.zeros(size)
    calls = {
        "gather": (lambda: dist.all_gather_into_tensor(whole, chunk),
                   lambda: c.all_gather(chunk.data_ptr(), whole.data_ptr(), chunk.numel() * 4)),
        "reduce-scatter": (lambda: dist.reduce_scatter_tensor(whole[: size // ranks], window),
                           lambda: c.reduce_scatter(window.data_ptr(), whole.data_ptr(), size // ranks, "torch.float32")),
    }
    for name, pair in calls.items():
        rates = []
        for call in pair:
            call()
            took = []
            for _ in range(rounds):
                dist.barrier()
                begin = time.perf_counter()
                call()
                took.append(time.perf_counter() - begin)
            rates.append(size * 4 / 2**30 / statistics.median(took))
        result[name] = dict(zip(("stock", "ours"), rates))
    return result


def main():
    import _ranks

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    args = p.parse_args()
    path = os.pathsep.join([_ranks.python_path(), HERE])
    result = _ranks.run("cpu:work", args.ranks, False, [dict(rounds=args.rounds)], env={"PYTHONPATH": path})[0]
    if isinstance(result, Exception):
        raise SystemExit(str(result))
    step = {k: max(r["step"][k] for r in result) * 1e3 for k in ("stock", "ours")}
    print("| | torch's | ours | ratio |\n| --- | --- | --- | --- |")
    print("| step, ms (%d ranks) | %.1f | %.1f | %.2f |" % (args.ranks, step["stock"], step["ours"], step["stock"] / step["ours"]))
    for name in ("gather", "reduce-scatter"):
        rate = {k: min(r[name][k] for r in result) for k in ("stock", "ours")}
        print("| %s, GiB/s | %.2f | %.2f | %.2f |" % (name, rate["stock"], rate["ours"], rate["ours"] / rate["stock"]))
    print("losses", result[0]["losses"])


if __name__ == "__main__":
    main()
