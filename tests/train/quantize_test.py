"""Quantised messages: 200 steps of a small Qwen2 beside the same without quantisation. Every 20 steps' mean loss agrees within 1 %, and bytes
between nodes are those of the plan.

    python tests/train/quantize_test.py [TEXT]      only cases whose name holds TEXT
"""
import gc
import sys

import torch

import _ranks
import fsdp2_test
import schedule_test

STEPS, WINDOW, VOCAB = 200, 20, 96


def batches(rank):
    """Sequences of a Markov chain with few likely successors: there is something to learn, and a floor above zero."""
    rule = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(5)).mul(2.5).softmax(1)
    generator = torch.Generator().manual_seed(10 + rank)
    while True:
        ids = torch.randint(0, VOCAB, (8, 1), generator=generator)
        for _ in range(31):
            ids = torch.cat([ids, torch.multinomial(rule[ids[:, -1]], 1, generator=generator)], 1)
        yield ids


def curve(face="fsdp2", steps=STEPS, **options):
    import torch.distributed as dist

    from raylet_c import train as ours

    gc.collect()
    ours.install(**{**schedule_test.NOTHING, **options})
    rank = dist.get_rank()
    model, layers = fsdp2_test.build("qwen2")
    planned = schedule_test.plan(model, layers)
    sharded, on_engine = schedule_test.shard(model, layers, face)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=4e-3)
    losses, seen = [], []
    for _, ids in zip(range(steps), batches(rank)):
        before = ours.traffic()
        loss = schedule_test.loss_of(sharded, "qwen2", ids)
        loss.backward()
        seen = ours.traffic()["between"] - before["between"]
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    assert on_engine()
    return {"losses": losses, "between": seen, "plan": planned["between"], "flat": face != "fsdp2"}


def compare(lossless, quantised, least):
    for results in (lossless, quantised):
        if isinstance(results, Exception):
            raise results
    one, other = lossless[0], quantised[0]
    means = [[sum(r["losses"][i : i + WINDOW]) / WINDOW for i in range(0, STEPS, WINDOW)] for r in (one, other)]
    print("# loss %s" % " ".join("%.3f/%.3f" % pair for pair in zip(*means)))
    assert means[0][-1] < 0.75 * means[0][0], "nothing was learned: %s" % means[0]
    assert one["losses"] != other["losses"], "nothing was quantised"
    for a, b in zip(*means):
        assert abs(a - b) <= 0.01 * a, "losses differ by more than 1 %%: %s and %s" % tuple(means)
    for result in quantised:
        # The plan is of the layout of fully_shard; that of FSDP1 pads units, not parameters.
        assert result["between"] == result["plan"] or result["flat"] and 0.8 < result["between"] / result["plan"] < 1, (
            "%d bytes between nodes, planned were %d" % (result["between"], result["plan"]))
    saved = one["between"] / other["between"]
    print("# bytes between nodes: %d, lossless %d, %.2f times" % (other["between"], one["between"], saved))
    assert saved >= least, "%.2f times fewer bytes" % saved


# (ranks, ranks of a node, name, least saving in bytes of f32 messages, options)
CASES = [
    (2, 1, "gathers and reductions in int8", 3, dict(quantize="int8")),
    (2, 1, "gathers in fp8, reductions in int4", 3.5, dict(quantize="gather=fp8,reduce=int4")),
    (2, 1, "reductions in int4, FSDP1", 1.3, dict(quantize="reduce=int4", face="fsdp1_orig")),
    (4, 2, "gathers and reductions in int8", 3, dict(quantize="int8")),
    (4, 2, "gathers in int8, reductions in int4, secondary shard", 4.5, dict(quantize="gather=int8,reduce=int4", secondary_shard=True)),
]


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    tap = _ranks.Tap()
    for ranks in (2, 4):
        cases = [c for c in CASES if c[0] == ranks and only in c[2]]
        if not cases:
            continue
        lossless = dict(ranks_per_node=cases[0][1])
        runs = [lossless, dict(lossless, face="fsdp1_orig")] + [dict(c[4], ranks_per_node=c[1]) for c in cases]
        results = _ranks.run("quantize_test:curve", ranks, True, runs, timeout=500)
        for (_, local, name, least, options), result in zip(cases, results[2:]):
            tap.check("%d ranks, %d a node, %s: the loss curve of lossless messages within 1 %%" % (ranks, local, name), compare,
                      results["face" in options], result, least)
    tap.end()


if __name__ == "__main__":
    main()
