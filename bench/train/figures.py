"""The figures of train_backend on GPUs: every row of a set in one run, a table, and a plot.

    python3 bench/train/figures.py [--set small|full|links] [--ranks 2] [--out FOLDER] [--limit SECONDS]

Each row is a process group of its own (bench/train/step.py under torch's launcher). Rows that fail or would pass the limit are named. The
table goes to standard output and FOLDER/figures.md, the lines to FOLDER/figures.jsonl, the plot to FOLDER/figures.png.
"""
import argparse
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HOST_LINK = {"NCCL_P2P_DISABLE": "1"}
SOCKET_LINK = dict(HOST_LINK, NCCL_SHM_DISABLE="1", NCCL_IB_DISABLE="1", NCCL_NET="Socket")
SETS = {
    "small": [("direct", {}, k, b) for k, b in [("single", 1), ("fsdp2", 1), ("ours", 1), ("ours-graph", 1)]],
    "full": [("direct", {}, k, b) for b, kinds in (
        (1, ["single", "single-graph", "ddp", "fsdp1-whole", "fsdp1", "fsdp2", "ours-whole", "ours", "ours-graph"]),
        (4, ["single", "single-compile", "ddp", "fsdp2", "fsdp2-compile", "ours", "ours-compile", "ours-graph"])) for k in kinds],
    "links": [(name, env, k, 4) for name, env in (("host", HOST_LINK), ("socket", SOCKET_LINK)) for k in ("fsdp2", "ours")],
}


def run(link, env, kind, batch, ranks, steps, seconds):
    ranks = 1 if kind.startswith("single") else ranks
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), os.path.join(HERE, "step.py"),
               "--kind", kind, "--batch", str(batch), "--steps", str(steps)]
    try:
        done = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="8", **env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, universal_newlines=True)
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        output = "no end within %d s\n%s" % (seconds, (late.stdout or b"").decode(errors="replace")[-1500:])
    for line in output.splitlines():
        if line.startswith("{"):
            return dict(json.loads(line), link=link), output
    return dict(kind=kind, batch=batch, link=link, failed=output.strip()[-1500:]), output


def table(rows):
    lines = ["| link | batch | kind | ms a step | host ms | tokens/s | device GiB | loss | of fsdp2 |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        if "failed" in r:
            lines.append("| %s | %s | %s | failed | | | | | |" % (r["link"], r["batch"], r["kind"]))
            continue
        stock = [q for q in rows if q["kind"] == "fsdp2" and q["batch"] == r["batch"] and q["link"] == r["link"] and "ms" in q]
        lines.append("| %s | %d | %s | %.1f | %.1f | %d | %.1f | %s | %s |" % (
            r["link"], r["batch"], r["kind"], r["ms"], r["host_ms"], r["tokens_per_s"], r["device_gib"], r["loss"],
            "%.2f" % (stock[0]["ms"] / r["ms"]) if stock else ""))
    return "\n".join(lines)


def plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = sorted({(r["link"], r["batch"]) for r in rows if "ms" in r})
    figure, axes = pyplot.subplots(1, len(groups), figsize=(1 + 4.5 * len(groups), 4), squeeze=False)
    for axis, (link, batch) in zip(axes[0], groups):
        some = [r for r in rows if "ms" in r and (r["link"], r["batch"]) == (link, batch)]
        colours = ["#c44e52" if r["kind"].startswith("ours") else "#8c8c8c" if r["kind"].startswith("single") else "#4c72b0" for r in some]
        bars = axis.barh([r["kind"] for r in some], [r["ms"] for r in some], color=colours)
        axis.bar_label(bars, fmt="%.0f", padding=3)
        axis.set_title("%s link, batch %d" % (link, batch))
        axis.set_xlabel("ms a step")
        axis.invert_yaxis()
        axis.margins(x=0.15)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--set", default="full", choices=sorted(SETS))
    p.add_argument("--kinds", default="", help="only these, by commas")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--steps", type=int, default=14)
    p.add_argument("--out", default=".")
    p.add_argument("--limit", type=float, default=1e9, help="seconds for all rows")
    args = p.parse_args()
    end, rows = time.monotonic() + args.limit, []
    os.makedirs(args.out, exist_ok=True)
    for link, env, kind, batch in SETS[args.set]:
        if args.kinds and kind not in args.kinds.split(","):
            continue
        left = end - time.monotonic()
        if left < 20:
            rows.append(dict(kind=kind, batch=batch, link=link, failed="no time left"))
            continue
        row, output = run(link, env, kind, batch, args.ranks, args.steps, min(left, 150))
        rows.append(row)
        print(json.dumps(row), flush=True)
        with open(os.path.join(args.out, "figures.jsonl"), "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
    print(table(rows), flush=True)
    with open(os.path.join(args.out, "figures.md"), "w", encoding="utf-8") as f:
        f.write(table(rows) + "\n")
    if any("ms" in r for r in rows):
        plot(rows, os.path.join(args.out, "figures.png"))


main()
