"""raylet-c train explain MODEL: what the engine would do with a model, before anything runs.

    raylet-c train explain MODEL [--ranks 8] [--ranks-per-node 4] [--tokens 8192] [--picture step.svg] ...

MODEL is a folder with a transformers config.json, or FILE.py:FUNCTION or MODULE:FUNCTION, a function that returns the torch module. Nothing is
allocated: the model is made on torch's meta device. Prints a table of units, bytes of one step within and between nodes, and memory of one rank.
--picture draws one step's timeline. Its lengths are estimates, from --tflops and the links' speeds; its order is the engine's.
"""
import argparse
import importlib
import importlib.util
import os
import sys
from collections import Counter

import torch

from . import settings
from .layout import RING_BUCKETS, RING_SLOTS, choose, gather_bytes, message_bytes, reduce_bytes, stays, up

MIB = 2**20


def load(name):
    if os.path.isdir(name):
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(name)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    source, _, function = name.rpartition(":")
    if not source:
        raise SystemExit("explain: %s is no folder and not FILE.py:FUNCTION or MODULE:FUNCTION" % name)
    if source.endswith(".py"):
        spec = importlib.util.spec_from_file_location("explained", source)
        if spec is None or not os.path.exists(source):
            raise SystemExit("explain: there is no file %s" % source)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(source)
    if not hasattr(module, function):
        raise SystemExit("explain: %s has no function %s" % (source, function))
    with torch.device("meta"):
        model = getattr(module, function)()
    if not isinstance(model, torch.nn.Module):
        raise SystemExit("explain: %s returned %s, not a torch module" % (name, type(model).__name__))
    return model


def units_of(model, unit_class, whole):
    """[(name, [(parameter name, parameter)])]: the root's last; a tied parameter counts where it comes first."""
    modules = dict(model.named_modules())
    inner = []
    if not whole:
        if not unit_class:  # the blocks of the model: the class that stands in lists and has most of the parameters
            weight = Counter()
            for m in modules.values():
                if isinstance(m, torch.nn.ModuleList):
                    for child in m:
                        weight[type(child).__name__] += sum(p.numel() for p in child.parameters())
            unit_class = weight.most_common(1)[0][0] if weight else None
        inner = [n for n, m in modules.items() if type(m).__name__ == unit_class]
        if unit_class and not inner:
            raise SystemExit("explain: the model has no module of class %s" % unit_class)
    seen, units = set(), []
    for name in inner + [""]:
        params = []
        for n, p in modules[name].named_parameters():
            if id(p) not in seen:
                seen.add(id(p))
                params.append((n, p))
        if params:
            units.append((name or "the root", params))
    return units


def plan(units, args):
    """One dictionary a unit: bytes as the engine lays them out."""
    rows = []
    align = args.way.align
    for name, params in units:
        chunk = trained = full = 0
        for _, p in params:
            rows_of_rank = -(-p.shape[0] // args.ranks) if p.dim() else 1
            count = rows_of_rank * (p.numel() // p.shape[0] if p.dim() and p.shape[0] else 1)
            chunk += up(count, align)
            full += up(count * args.ranks)
            trained += up(count, align) if p.requires_grad else 0
        count = sum(p.numel() for _, p in params)
        alone = name == "the root"
        rows.append(dict(name=name, params=count, chunk=chunk, trained=trained, full=full, alone=alone, gathers=1 if alone else 2))
    ring = [r for r in rows if not r["alone"]]
    for r in ring[-RING_SLOTS:]:  # what lies in the slots at the end of forward is not gathered again
        r["gathers"] = 1
    for i in stays([r["full"] * args.param_bytes for r in ring], args.keep_gathered):
        ring[i].update(alone=True, gathers=1)
    return rows


def bytes_of_step(rows, args):
    """(within a node, between nodes): what comes to one rank in one step."""
    inside = between = 0
    for r in rows:
        outer = 1 if args.way.secondary else r["gathers"]
        parts = [gather_bytes(args.way, r["chunk"], args.param_bytes, i >= outer) for i in range(r["gathers"])]
        for within, across in parts + [reduce_bytes(args.way, r["trained"], args.reduce_bytes)]:
            inside += within
            between += across
    return inside, between


def memory_of(rows, args):
    ring = [r for r in rows if not r["alone"]]
    whole = [r for r in rows if r["alone"]]
    slots = min(RING_SLOTS, len(ring))
    largest = max([r["full"] for r in ring], default=0)
    trained = max([r["trained"] for r in ring], default=0)
    shard = sum(r["chunk"] for r in rows)
    grads = sum(r["trained"] for r in rows)
    return [
        ("shard", shard * args.shard_bytes),
        ("gradient of the shard", grads * args.shard_bytes),
        ("optimizer (two states, as AdamW)", 2 * grads * args.shard_bytes),
        ("gathered: %d slots for %d units" % (slots, len(ring)), slots * largest * args.param_bytes),
        ("gathered: %s" % ("the root" if len(whole) == 1 else "the root and %d units that stay" % (len(whole) - 1)),
         sum(r["full"] for r in whole) * args.param_bytes),
        ("messages of gathers and gradients", (largest + RING_BUCKETS * trained * args.ranks) * max(args.param_bytes, args.reduce_bytes)),
    ] + levels_memory(rows, args)


def levels_memory(rows, args):
    way = args.way
    if way.levels == 1:
        return []
    chunk, trained = (max(r[what] for r in rows) for what in ("chunk", "trained"))
    scratch = 0 if way.secondary else way.rows * chunk * args.param_bytes
    scratch += way.rows * message_bytes(way.quantize_gather, chunk) if way.quantize_gather else 0
    scratch += 0 if way.alone else way.rows * trained * args.reduce_bytes
    scratch += 2 * way.rows * message_bytes(way.quantize_reduce, trained) + 4 * trained if way.quantize_reduce else 0
    return [(what, n) for what, n in (
        ("scratch of two levels", scratch),
        ("secondary shard", way.secondary and way.rows * sum(r["chunk"] for r in rows) * args.param_bytes),
        ("what rounding of gradients has lost", way.quantize_reduce and 4 * way.rows * sum(r["trained"] for r in rows)),
    ) if n]


def timeline(rows, args):
    """(lane, begin, end, unit, what) in ms: the engine's schedule with estimated lengths."""
    links = args.within_gbs * 1e6, args.between_gbs / args.ranks_per_node * 1e6  # bytes a ms, of one rank
    root = [r for r in rows if r["name"] == "the root"]
    ring = [r for r in rows if r not in root]  # and those that stay gathered
    events = []
    free = {"gather": 0.0, "compute": 0.0, "reduce": 0.0}

    def add(lane, after, length, unit, what):
        begin = max(free[lane], after)
        free[lane] = begin + length
        events.append((lane, begin, begin + length, unit, what))
        return begin + length

    def gather(r, inside=False):
        return sum(n / link for n, link in zip(gather_bytes(args.way, r["chunk"], args.param_bytes, inside), links))

    def reduction(r):
        return sum(n / link for n, link in zip(reduce_bytes(args.way, r["trained"], args.reduce_bytes), links))

    def work(r, passes):
        return 2e-9 * r["params"] * args.tokens * passes / args.tflops

    for r in root:
        add("gather", 0, gather(r), r["name"], "gather")
    start = free["gather"]
    released = [0.0] * RING_SLOTS
    for i, r in enumerate(ring):
        ready = add("gather", released[i % RING_SLOTS], gather(r), r["name"], "gather")
        released[i % RING_SLOTS] = add("compute", max(ready, start), work(r, 1), r["name"], "forward")
    for r in root:
        add("compute", free["compute"], work(r, 3), r["name"], "head, loss and their gradients")
    for i, r in reversed(list(enumerate(ring))):
        ready = 0.0
        if r["gathers"] > 1:
            ready = add("gather", released[i % RING_SLOTS], gather(r, args.way.secondary), r["name"], "gather")
        done = add("compute", ready, work(r, 2), r["name"], "backward")
        released[i % RING_SLOTS] = done
        if r["trained"]:
            add("reduce", done, reduction(r), r["name"], "reduce-scatter")
    for r in root:
        if r["trained"]:
            add("reduce", free["compute"], reduction(r), r["name"], "reduce-scatter")
    return events


def picture(events, path, title):
    from xml.sax.saxutils import escape

    end = max(e[2] for e in events)
    lanes, colours = ["gather", "compute", "reduce"], {"gather": "#4c72b0", "compute": "#55a868", "reduce": "#c44e52"}
    width, left, height = 1200, 80, 46
    scale = (width - left - 20) / end
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (width, 70 + height * 3),
           '<rect width="100%" height="100%" fill="white"/>', '<text x="10" y="18">%s</text>' % escape(title)]
    for i, lane in enumerate(lanes):
        out.append('<text x="10" y="%d">%s</text>' % (50 + i * height, lane))
    for lane, begin, stop, unit, what in events:
        y = 32 + lanes.index(lane) * height
        out.append('<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="white" stroke-width="0.4">'
                   % (left + begin * scale, y, max((stop - begin) * scale, 0.3), height - 14, colours[lane]))
        out.append("<title>%s of %s: %.2f to %.2f ms</title></rect>" % (escape(what), escape(unit), begin, stop))
    ticks = 8
    for i in range(ticks + 1):
        at = end * i / ticks
        out.append('<text x="%.0f" y="%d" text-anchor="middle">%.1f ms</text>' % (left + at * scale, 58 + height * 3, at))
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def size(n):
    return "%.2f GiB" % (n / 2**30) if n >= 2**30 else "%.1f MiB" % (n / MIB)


def show(rows, args, out=sys.stdout):
    def tell(text=""):
        print(text, file=out)

    count = format(sum(r["params"] for r in rows), ",")
    tell("%d units on %d ranks, %d a node; %s parameters" % (len(rows), args.ranks, args.ranks_per_node, count))
    tell()
    tell("| unit | parameters | gathered | its shard | gathers a step | gradient message |")
    tell("| --- | --- | --- | --- | --- | --- |")
    groups = []
    for r in rows:  # alike and side by side: one line
        key = (r["params"], r["chunk"], r["trained"], r["gathers"])
        if groups and groups[-1][0] == key:
            groups[-1][1].append(r)
        else:
            groups.append((key, [r]))
    for _, some in groups:
        r = some[0]
        name = r["name"] if len(some) == 1 else "%s to %s (%d)" % (some[0]["name"], some[-1]["name"], len(some))
        tell("| %s | %s | %s | %s | %d | %s |" % (
            name, format(r["params"], ","), size(r["full"] * args.param_bytes), size(r["chunk"] * args.shard_bytes), r["gathers"],
            size(r["trained"] * args.ranks * args.reduce_bytes)))
    tell()
    nodes = args.ranks // args.ranks_per_node
    whole = sum(r["params"] for r in rows) * args.param_bytes
    inside, between = bytes_of_step(rows, args)
    tell("Schedule: %s." % str(args.way))
    for note in args.way.notes:
        tell("Not done: %s." % note)
    tell("One rank takes %s within its node%s in one step." % (size(inside), " and %s from other nodes, a node %s: %.2f of the gathered model" % (
        size(between), size(between * args.ranks_per_node), between * args.ranks_per_node / whole) if nodes > 1 else ""))
    tell()
    tell("| memory of one rank | |")
    tell("| --- | --- |")
    total = 0
    for what, n in memory_of(rows, args):
        total += n
        tell("| %s | %s |" % (what, size(n)))
    tell("| all but activations | %s |" % size(total))


def parse(argv):
    p = argparse.ArgumentParser(prog="raylet-c train explain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODEL")
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--ranks-per-node", type=int, default=0, help="all, when not given")
    p.add_argument("--unit", default="", help="the class whose modules are units; the model's blocks, when not given")
    p.add_argument("--whole", action="store_true", help="one unit, as FSDP(model) without a policy")
    p.add_argument("--shard-bytes", type=int, default=4, help="of one element of the shard (float32: 4)")
    p.add_argument("--param-bytes", type=int, default=2, help="of one gathered element (bfloat16: 2)")
    p.add_argument("--reduce-bytes", type=int, default=2, help="of one element of gradient messages")
    p.add_argument("--tokens", type=int, default=8192, help="of one rank in one step, for the picture")
    p.add_argument("--tflops", type=float, default=60, help="that one GPU reaches, for the picture")
    p.add_argument("--within-gbs", type=float, default=20, help="GB/s that one rank sends within a node, for the picture")
    p.add_argument("--between-gbs", type=float, default=5, help="GB/s that one node sends, for the picture (40 Gbit/s: 5)")
    p.add_argument("--picture", metavar="FILE.svg")
    schedule = p.add_argument_group("schedule, as the options of raylet_c.train.install(); those of the environment count too")
    schedule.add_argument("--one-level", action="store_true", help="gather and reduce in flat rings")
    schedule.add_argument("--secondary-shard", action="store_true", help="a copy of the gathered model within each node, for backward")
    schedule.add_argument("--quantize", metavar="KIND", help="messages between nodes: int8, or gather=fp8,reduce=int4")
    schedule.add_argument("--keep-gathered", metavar="BYTES", help="of units that stay gathered between forward and backward")
    args = p.parse_args(argv)
    given = {"two_level": False if args.one_level else None, "secondary_shard": args.secondary_shard or None, "quantize": args.quantize,
             "keep_gathered": args.keep_gathered}
    try:
        settings.give({name: value for name, value in given.items() if value is not None})
        options = settings.get()
    except ValueError as error:
        p.error(str(error))
    args.ranks_per_node = args.ranks_per_node or options.ranks_per_node or args.ranks
    args.keep_gathered = sys.maxsize if options.keep_gathered == "auto" else options.keep_gathered
    if args.ranks < 1 or args.ranks % args.ranks_per_node:
        p.error("--ranks %d is no multiple of --ranks-per-node %d" % (args.ranks, args.ranks_per_node))
    args.way = choose(options, args.ranks, args.ranks_per_node)
    return args


def main(argv=None):
    args = parse(argv)
    rows = plan(units_of(load(args.model), args.unit, args.whole), args)
    if not rows:
        raise SystemExit("explain: the model has no parameters")
    show(rows, args)
    if args.picture:
        title = "One step of %s on %d ranks: estimated lengths, the engine's order" % (args.model, args.ranks)
        picture(timeline(rows, args), args.picture, title)
        print("\nThe picture is in %s" % args.picture)


if __name__ == "__main__":
    main()
