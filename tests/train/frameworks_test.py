"""Hugging Face Accelerate and Trainer, and Lightning, with their FSDP settings on CPU ranks: the engine's losses against torch's own.

    python tests/train/frameworks_test.py [TEXT]      only cases whose name holds TEXT; a framework that is missing is skipped

They allow FSDP on accelerators only. That check is lifted here, in torch's own run too; all else is theirs.
"""
import importlib.util
import sys
import tempfile

import torch

import _ranks

STEPS = 6


def engines():
    import gc

    return sum(type(o).__module__ == "raylet_c._train" and type(o).__name__ == "Engine" for o in gc.get_objects())


def small_model():
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=16, tie_word_embeddings=False, use_cache=False)
    return AutoModelForCausalLM.from_config(config)


def rows(count):
    return torch.randint(0, 64, (count, 16), generator=torch.Generator().manual_seed(3))


def allow_accelerate():
    """Accelerate looks at how the processes are connected; it finds what it would find with GPUs."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    init = PartialState.__init__

    def as_with_gpus(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.distributed_type, self.device = DistributedType.MULTI_GPU, torch.device("cpu")

    PartialState.__init__ = as_with_gpus


def accelerate(version):
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    allow_accelerate()
    options = {"fsdp_version": version, "auto_wrap_policy": "transformer_based_wrap",
               "transformer_cls_names_to_wrap": ["Qwen2DecoderLayer"]}
    if version == 1:
        options["use_orig_params"] = True
    accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(**options))
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(rows(STEPS * 4 * accelerator.num_processes), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, norms = [], []
    for ids in loader:
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    state = accelerator.get_state_dict(model)
    return losses, norms, {n: t.clone() for n, t in state.items()}, engines()


def trainer(version):
    from transformers import Trainer, TrainingArguments

    allow_accelerate()
    losses = []

    class Noting(Trainer):
        def log(self, logs, *args, **kwargs):
            losses.append(logs.get("loss"))

    config = {"version": version, "transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"], "sync_module_states": False,
              "cpu_ram_efficient_loading": False}
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, use_cpu=True, per_device_train_batch_size=4, max_steps=STEPS, logging_steps=1, report_to=[],
                                 fsdp="full_shard auto_wrap", fsdp_config=config, save_strategy="no", disable_tqdm=True, ddp_backend="gloo")
        data = [{"input_ids": r, "labels": r} for r in rows(STEPS * 4 * 2)]
        Noting(model=small_model(), args=args, train_dataset=data).train()
    return losses, [], {}, engines()


def lightning(kind):
    import lightning
    from lightning.pytorch.trainer.connectors import accelerator_connector as connector
    from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

    losses = []

    class Module(lightning.LightningModule):
        def configure_model(self):
            if hasattr(self, "model"):
                return
            self.model = small_model()
            if kind == "fully_shard":
                from torch.distributed.fsdp import fully_shard

                for layer in self.model.model.layers:
                    fully_shard(layer, mesh=self.device_mesh["data_parallel"])
                fully_shard(self.model, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch, _):
            loss = self.model(input_ids=batch, labels=batch).loss
            losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.trainer.model.parameters(), lr=1e-2)

    if kind == "fully_shard":
        strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    else:
        policy = {type(small_model().model.layers[0])}
        strategy = FSDPStrategy(use_orig_params=True, auto_wrap_policy=policy)
        connector._AcceleratorConnector._check_strategy_and_fallback = lambda self: None
    with tempfile.TemporaryDirectory() as folder:
        fit = lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_steps=STEPS, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
        fit.fit(Module(), torch.utils.data.DataLoader(rows(STEPS * 4 * 2), batch_size=4))
    return losses, [], {}, engines()


CASES = {
    "accelerate/fsdp2": ("accelerate", {"version": 2}, None),
    "accelerate/fsdp1": ("accelerate", {"version": 1}, None),
    "trainer/fsdp2": ("trainer", {"version": 2}, None),
    "trainer/fsdp1": ("trainer", {"version": 1}, None),
    "lightning/fully_shard": ("lightning", {"kind": "fully_shard"}, None),
    # It names no device, and then torch's own FullyShardedDataParallel wants a GPU: compared with torch's own fully_shard.
    "lightning/fsdp1": ("lightning", {"kind": "fsdp1"}, {"kind": "fully_shard"}),
}
NEEDS = {"accelerate": "accelerate", "trainer": "accelerate", "lightning": "lightning"}


def compare(stock, ours):
    """What is wrong, or None."""
    for rank, ((losses, norms, state, none), (our_losses, our_norms, our_state, engines_made)) in enumerate(zip(stock, ours)):
        if none or not engines_made:
            return "rank %d: torch's own run has %d engines, ours %d" % (rank, none, engines_made)
        if losses != our_losses:
            return "rank %d: torch's own losses are %s, ours %s" % (rank, losses, our_losses)
        if any(abs(a - b) > 1e-6 * a for a, b in zip(norms, our_norms)):  # the sum has another order
            return "rank %d: torch's own norms of the gradients are %s, ours %s" % (rank, norms, our_norms)
        if state.keys() != our_state.keys() or any(not torch.equal(state[n], our_state[n]) for n in state):
            return "rank %d: the state dicts differ" % rank
        if len(losses) < STEPS:
            return "rank %d: only %d losses" % (rank, len(losses))
    return None


def main():
    text = sys.argv[1] if len(sys.argv) > 1 else ""
    failed = False
    chosen = [name for name in CASES if text in name]
    env = {"ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
    for number, name in enumerate(chosen, 1):
        function, kwargs, other = CASES[name]
        if importlib.util.find_spec(NEEDS[function]) is None:
            print("ok %d - %s # SKIP %s is not installed" % (number, name, NEEDS[function]))
            continue
        runs = ((False, other or kwargs), (True, kwargs))
        results = [_ranks.run("frameworks_test:" + function, 2, ours, [arguments], env=env)[0] for ours, arguments in runs]
        errors = [str(r) for r in results if isinstance(r, Exception)]
        wrong = errors[0] if errors else compare(*results)
        failed = failed or bool(wrong)
        print("%s %d - %s" % ("not ok" if wrong else "ok", number, name), flush=True)
        for line in (wrong or "").splitlines():
            print("# " + line)
    print("1..%d" % len(chosen))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
