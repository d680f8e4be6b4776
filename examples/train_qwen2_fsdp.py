"""Fine-tunes a causal language model with TorchTrainer: bfloat16 weights, the whole model sharded by FSDP, a checkpoint after
every epoch. An ordinary Ray script: nothing in it knows which node daemon runs it.

    python train_qwen2_fsdp.py --cpu                                 a small Qwen2 made on the spot, two CPU ranks, gloo
    python train_qwen2_fsdp.py --model Qwen/Qwen2.5-0.5B --workers 8  a real model, one GPU a rank, NCCL

The text is bytes of any file that every node has; the small model reads bytes as tokens, a real one goes through its
tokenizer. Prints one line a step, and at the end the loss and where the checkpoint lies.
"""
import argparse
import os
import tempfile
import time

SEQUENCE = 128
BATCH = 8


def build_model(config):
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    if config["model"]:
        return AutoModelForCausalLM.from_pretrained(config["model"], torch_dtype=torch.bfloat16)
    small = Qwen2Config(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=SEQUENCE,
        tie_word_embeddings=True,
    )
    return AutoModelForCausalLM.from_config(small).to(torch.bfloat16)


def load_rows(config, rank, world_size):
    """This rank's share of the text, one row of SEQUENCE tokens each."""
    import torch

    with open(config["text"], "rb") as f:
        data = f.read()
    if config["model"]:
        from transformers import AutoTokenizer

        tokens = torch.tensor(AutoTokenizer.from_pretrained(config["model"])(data.decode("utf-8", "replace"))["input_ids"])
    else:
        tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8).long()
    rows = tokens[: len(tokens) // SEQUENCE * SEQUENCE].view(-1, SEQUENCE)
    if len(rows) < BATCH * world_size:
        raise ValueError("%s is too short: %d tokens for %d ranks" % (config["text"], len(tokens), world_size))
    return rows[rank::world_size]


def gather_state(model, on_cpu):
    """The full state. Stock FSDP cannot offload to the CPU what is there already, so every CPU rank keeps its copy."""
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

    how = FullStateDictConfig(offload_to_cpu=not on_cpu, rank0_only=not on_cpu)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, how):
        return model.state_dict()


def train(config):
    import ray.train
    import ray.train.torch
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    torch.manual_seed(0)
    context = ray.train.get_context()
    rank = context.get_world_rank()
    device = ray.train.torch.get_device()
    rows = load_rows(config, rank, context.get_world_size())
    model = build_model(config).to(device)
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu") if config["cpu"] else device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    for epoch in range(config["epochs"]):
        for step in range(config["steps"]):
            began = time.monotonic()
            first = step * BATCH % (len(rows) - BATCH + 1)
            batch = rows[first : first + BATCH].to(device)
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                print("epoch %d step %2d loss %.4f %4.0f ms" % (epoch, step, loss.item(), 1000 * (time.monotonic() - began)), flush=True)
        state = gather_state(model, config["cpu"])
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0:
                torch.save(state, os.path.join(folder, "model.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item(), "epoch": epoch}, checkpoint=checkpoint)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="", help="folder or name of a model; none: a small one made on the spot")
    p.add_argument("--text", default="/usr/share/common-licenses/GPL-3", help="a text file that every node has")
    p.add_argument("--cpu", action="store_true", help="ranks without GPUs")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--steps", type=int, default=20, help="per epoch")
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--address", default="auto", help="the cluster's address")
    p.add_argument("--storage", default=None, help="where checkpoints go; every node must reach it")
    args = p.parse_args()
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init(address=args.address)
    config = {name: getattr(args, name) for name in ("model", "text", "cpu", "epochs", "steps", "lr")}
    began = time.monotonic()
    result = TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=not args.cpu),
        run_config=RunConfig(storage_path=args.storage or tempfile.mkdtemp(prefix="train-"), name="qwen2"),
    ).fit()
    print("seconds %.1f" % (time.monotonic() - began))
    print("loss %.4f" % result.metrics["loss"])
    print("checkpoint %s" % result.checkpoint.path)


if __name__ == "__main__":
    main()
