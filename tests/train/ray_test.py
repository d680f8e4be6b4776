#!/usr/bin/env python3
"""Train functions that drivers without our package send to our node run on the engine, and end where torch's own would have.

    .venv-2.60.0/bin/python tests/train/ray_test.py --ray-bin .venv-2.60.0/bin     the wheel installed, `raylet-c enable` done

A driver trains the same models, by fully_shard, FullyShardedDataParallel and prepare_model, on two CPU ranks.
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "field"))
os.environ.setdefault("FIELD_NET", "127.0.42")
import _field  # noqa: E402
from _field import expect, wait_for  # noqa: E402

# Its names of torch and Ray are pickled as references to their modules. That of our package cannot even be imported.
DRIVER = """
import gc, json
for name in [n for n in sys.modules if n.split(".")[0] == "raylet_c"]:
    del sys.modules[name]
sys.modules["raylet_c"] = None
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
import ray.train

def by_fully_shard(model):
    for layer in model:
        if isinstance(layer, torch.nn.Sequential):
            fully_shard(layer)
    fully_shard(model)
    return model

def by_fsdp(model):
    return FSDP(model, device_id=torch.device("cpu"))

def by_fsdp_with_original_parameters(model):
    return FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)

def by_prepare_model(model):
    return prepare_model(model, parallel_strategy="fsdp", parallel_strategy_kwargs={"use_orig_params": True})

kept = []

def losses_of(wrap):
    torch.manual_seed(1)
    block = lambda: torch.nn.Sequential(torch.nn.Linear(16, 31), torch.nn.GELU(), torch.nn.Linear(31, 16))
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), block(), block(), torch.nn.Linear(16, 5))
    model = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(2 + torch.distributed.get_rank())
    losses = []
    for _ in range(5):
        x = torch.randn(8, 16, generator=data)
        loss = torch.nn.functional.cross_entropy(model(x), torch.arange(8) % 5)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    kept.append(model)
    return losses

def engines():
    return sum(type(o).__module__ == "raylet_c._train" and type(o).__name__ == "Engine" for o in gc.get_objects())

def train(config):
    report = {"forked": "raylet_c.train.warm" in sys.modules}
    for wrap in (by_fully_shard, by_fsdp, by_fsdp_with_original_parameters, by_prepare_model):
        before = engines()
        try:
            report[wrap.__name__] = losses_of(wrap)
        except RuntimeError as error:
            report[wrap.__name__] = str(error)
        report["engines of " + wrap.__name__] = engines() - before
    if ray.train.get_context().get_world_rank() == 0:
        with open(config["out"], "w") as f:
            json.dump(report, f)
    ray.train.report({})

TorchTrainer(
    train, train_loop_config={"out": OUT}, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=OUT + ".kept"),
).fit()
"""


def run(field, **variables):
    """What rank 0 of the train function reported; the variables are those of the driver's runtime env."""
    out = field.log_path("losses")
    driver = field.driver("OUT = %r\n%s" % (out, DRIVER), init="runtime_env={'env_vars': %r}" % variables)
    wait_for(lambda: driver.poll() is not None, 240, "the driver ends")
    expect(driver.returncode == 0, "the driver ended with %s:\n%s" % (driver.returncode, _field.read(driver.log)[-3000:]))
    return json.loads(_field.read(out))


FSDP = ("by_fsdp", "by_fsdp_with_original_parameters")
ALL = ("by_fully_shard", "by_prepare_model") + FSDP


def check_ours(got, stock, forked):
    expect(got["forked"] == forked, "the workers were %sforked" % ("" if got["forked"] else "not "))
    for name in ALL:
        expect(got["engines of " + name] > 0, "no engine came to be %s: %s" % (name, got[name]))
    for name in FSDP + ("by_fully_shard",):
        expect(got[name] == stock[name], "%s: the losses are %s, torch's own are %s" % (name, got[name], stock[name]))
    same = stock["by_fsdp_with_original_parameters"]
    expect(got["by_prepare_model"] == same, "by_prepare_model: the losses are %s, not %s" % (got["by_prepare_model"], same))


def check_stock(got):
    for name in ALL:
        expect(got["engines of " + name] == 0, "an engine came to be %s" % name)
    for name in FSDP + ("by_fully_shard",):
        expect(isinstance(got[name], list) and got[name][-1] < got[name][0], "torch's own %s: %s" % (name, got[name]))
    expect("use_gpu=True" in got["by_prepare_model"], "Ray's own prepare_model: %s" % got["by_prepare_model"])


def executed_workers(field):
    field.start_head()
    field.start_node(env={"RAYLET_C_PREFORK": "0"})
    stock = run(field, RAYLET_C_FSDP="0")
    check_stock(stock)
    check_stock(run(field, RAYLET_C=""))  # the user's own value
    check_ours(run(field), stock, False)


def forked_workers(field):
    field.start_head()
    node = field.start_node(env={"RAYLET_C_PREFORK_TRAIN": "1", "RAYLET_C": None})
    stock = run(field, RAYLET_C_FSDP="0")  # by then the server for trainers is there
    check_stock(stock)
    warm = "prefork server for trainers [0-9]+ has imported everything"
    wait_for(lambda: re.search(warm, field.daemon_log()), 60, "the prefork server for trainers is ready")
    check_ours(run(field), stock, True)
    check_stock(run(field, RAYLET_C_FSDP="0"))
    expect(node.of("raylet"), "the node is there")


OTHERS = """
import subprocess
@ray.remote(num_cpus=1)
def look():
    code = "import os, sys; print(os.environ.get('RAYLET_C'), [m for m in sys.modules if m.startswith('torch')])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
print("SAW", ray.get(look.remote()), flush=True)
"""


def nothing_else_is_disturbed(field):
    """A node that is started where RAYLET_C=fsdp is set, as in a worker, is ours, by `ray start` and by `raylet-c start`."""
    field.start_head()
    for program in (("ray", "start"), (field.raylet_c, "start")):
        node = field.start_node(env={"RAYLET_C": "fsdp"}, program=program)
        stock = os.path.basename(os.readlink("/proc/%d/exe" % node.raylet)).endswith(".stock")
        expect(not stock, "%s started Ray's own daemon" % program[0])
        driver = field.driver(OTHERS, init="_node_ip_address=%r" % node.ip)
        wait_for(lambda: driver.poll() is not None, 60, "the driver ends")
        expect("SAW fsdp []" in _field.read(driver.log), _field.read(driver.log)[-1000:])


if __name__ == "__main__":
    executed_workers.limit = forked_workers.limit = 600
    _field.run(executed_workers, forked_workers, nothing_else_is_disturbed)
