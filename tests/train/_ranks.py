"""Runs a function on N ranks (processes of one host, gloo on 127.0.0.1), with torch's own FSDP or with ours, for one or many sets of
arguments in the same processes, and brings back what each rank returns.

    results = run("fsdp2_test:train", 2, ours=True, cases=[dict(kind="tied")])    calls train(kind="tied") of fsdp2_test.py on 2 ranks
    results[case][rank]; an exception in a case is an AssertionError at its place and at those of all later ones.
"""
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def check_exact(results):
    """Each rank ran on the engine, and has the oracle's losses and weights bit for bit."""
    import torch

    if isinstance(results, Exception):
        raise results
    for result in results:
        assert result["ours"], "the run was not the engine's"
        for ours, oracle in result["losses"]:
            assert ours == oracle, "losses differ: %s" % result["losses"]
        for name, (ours, oracle) in result["weights"].items():
            assert torch.equal(ours, oracle), "weight %s differs by %g" % (name, (ours - oracle).abs().max())


class Tap:
    """The lines of a test: check(sentence, function, *arguments) for each case, end() last."""

    def __init__(self):
        self.number = self.failed = 0
        self.told = None  # one failed case takes all later ones of its processes with it: its text is printed once

    def check(self, sentence, function, *arguments):
        self.number += 1
        try:
            function(*arguments)
            print("ok %d - %s" % (self.number, sentence), flush=True)
        except Exception as error:
            self.failed += 1
            if str(error) != self.told:
                print("".join("# " + line + "\n" for line in str(error).splitlines()[-25:]), end="")
            self.told = str(error)
            print("not ok %d - %s" % (self.number, sentence), flush=True)

    def end(self):
        print("1..%d" % self.number)
        sys.exit(1 if self.failed else 0)


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def python_path():
    """raylet_c from this tree, with the C module that the quick build or Bazel made (RAYLET_C_MODULE: its folder)."""
    return os.pathsep.join([HERE, os.path.join(ROOT, "python")])


def run(what, ranks, ours, cases, timeout=150, env=None, places=None):
    """places: what stands before the command of each rank, such as that of a network namespace. A run of torch's own that does not end (gloo loses a message now and then on a busy machine) is made once more: it is the oracle."""
    results, late = _run(what, ranks, ours, cases, timeout, env, places)
    if late and not ours:
        print("# torch's own run of %s on %d ranks did not end within %d s: once more" % (what, ranks, timeout), flush=True)
        results, late = _run(what, ranks, ours, cases, timeout, env, places)
    return results


def _run(what, ranks, ours, cases, timeout, env, places):
    import torch

    mode = "ours" if ours else "stock"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
                       "RANKS_FOLDER": folder, "PYTHONPATH": python_path(), **(env or {})}
        processes, logs = [], []
        for rank in range(ranks):
            logs.append(open(os.path.join(folder, "%d.log" % rank), "w+"))
            processes.append(subprocess.Popen([*(places[rank] if places else ()), sys.executable, os.path.join(HERE, "_ranks.py"), what, mode, json.dumps(cases)],
                                              env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)), stdout=logs[-1],
                                              stderr=subprocess.STDOUT))
        end = time.monotonic() + timeout
        late = False
        while any(p.poll() is None for p in processes):
            bad = any(p.poll() not in (None, 0) for p in processes)
            if bad:
                end = min(end, time.monotonic() + 20)  # the others end by themselves, or are of no use any more
            if time.monotonic() > end:
                late = not bad
                for p in processes:
                    p.kill()
            time.sleep(0.05)
        text = ""
        for rank, (p, log) in enumerate(zip(processes, logs)):
            log.seek(0)
            if p.returncode:
                text += "rank %d (%s) ended with %d:\n%s\n" % (rank, mode, p.returncode, log.read()[-3000:])
            log.close()
        if late:
            text = "%s on %d ranks (%s) did not end within %d s\n%s" % (what, ranks, mode, timeout, text)
        results = []
        for i in range(len(cases)):
            paths = [os.path.join(folder, "%d-%d.pt" % (i, r)) for r in range(ranks)]
            if all(map(os.path.exists, paths)):
                results.append([torch.load(path, weights_only=False) for path in paths])
            else:
                results.append(AssertionError(text or "no result of case %d" % i))
        return results, late


def run_cases(what, all_ranks, ours, sentences, timeout):
    """The main function of a test whose cases are functions that assert: what(name=...) for each name of sentences, on each number of ranks."""

    def passed(result):
        if isinstance(result, Exception):
            raise result

    tap = Tap()
    for ranks in all_ranks:
        for result, sentence in zip(run(what, ranks, ours, [{"name": name} for name in sentences], timeout), sentences.values()):
            tap.check("%s (%d ranks)" % (sentence, ranks), passed, result)
    tap.end()


def load_module():
    """Makes raylet_c._train of the build importable beside the sources in python/."""
    import importlib.util

    import raylet_c

    for folder in (os.environ.get("RAYLET_C_MODULE"), os.path.join(ROOT, "build", "raylet_c")):
        path = folder and os.path.join(folder, "_train.abi3.so")
        if path and os.path.exists(path):
            spec = importlib.util.spec_from_file_location("raylet_c._train", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules["raylet_c._train"] = raylet_c._train = module
            return
    raise SystemExit("raylet_c._train is not built: bazel/dev.sh build/raylet_c/_train.abi3.so")


def name_as_newer():
    """Gives parts of torch 2.4 and 2.5 the names of later releases, which the tests use."""
    import torch.distributed.fsdp
    import torch.distributed.tensor

    if not hasattr(torch.distributed.tensor, "DTensor"):
        from torch.distributed import _tensor

        vars(torch.distributed.tensor).update((n, getattr(_tensor, n)) for n in ("DTensor", "Replicate", "Shard"))
    if not hasattr(torch.distributed.fsdp, "fully_shard"):
        from torch.distributed._composable import fsdp

        vars(torch.distributed.fsdp).update((n, v) for n, v in vars(fsdp).items() if not n.startswith("_"))


def _child():
    import torch
    import torch.distributed as dist

    what, mode, cases = sys.argv[1:4]
    torch.set_num_threads(1)
    if mode == "ours":
        load_module()
        from raylet_c import train

        train.install()
    name_as_newer()
    backend = os.environ.get("RANKS_BACKEND", "gloo")
    if backend == "raylet_c":
        import raylet_c.train.process_group  # noqa: F401
    dist.init_process_group(backend)
    name, function = what.split(":")
    function = getattr(importlib.import_module(name), function)
    folder, rank = os.environ["RANKS_FOLDER"], os.environ["RANK"]
    for i, kwargs in enumerate(json.loads(cases)):
        result = function(**kwargs)
        torch.save(result, os.path.join(folder, "%d-%s.tmp" % (i, rank)))
        os.rename(os.path.join(folder, "%d-%s.tmp" % (i, rank)), os.path.join(folder, "%d-%s.pt" % (i, rank)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    _child()
