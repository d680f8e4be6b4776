"""A small classifier on scikit-learn's digits with TorchTrainer and data-parallel ranks: the first script one tries on a
cluster. Needs no GPU and no download.

    python train_digits.py --workers 2
"""
import argparse
import os
import tempfile


def train(config):
    import ray.train
    import ray.train.torch
    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels))
    training, held_out = torch.utils.data.random_split(data, [1500, len(data) - 1500], generator=torch.Generator().manual_seed(0))
    loader = ray.train.torch.prepare_data_loader(DataLoader(training, batch_size=config["batch"], shuffle=True))
    model = ray.train.torch.prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    context = ray.train.get_context()
    x, y = (torch.stack(column) if torch.is_tensor(column[0]) else torch.tensor(column) for column in zip(*held_out))
    device = ray.train.torch.get_device()
    for epoch in range(config["epochs"]):
        if context.get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for images, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = (model(x.to(device)).argmax(1) == y.to(device)).float().mean().item()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if context.get_world_rank() == 0:
                print("epoch %d loss %.3f accuracy %.3f" % (epoch, loss.item(), right), flush=True)
                plain = model.module if hasattr(model, "module") else model
                torch.save(plain.state_dict(), os.path.join(folder, "model.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item(), "accuracy": right}, checkpoint=checkpoint)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--gpu", action="store_true", help="one GPU a rank")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--address", default="auto")
    p.add_argument("--storage", default=None, help="where checkpoints go; every node must reach it")
    args = p.parse_args()
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init(address=args.address)
    result = TorchTrainer(
        train,
        train_loop_config={"epochs": args.epochs, "batch": 64, "lr": 1e-2},
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=args.gpu),
        run_config=RunConfig(storage_path=args.storage or tempfile.mkdtemp(prefix="train-"), name="digits"),
    ).fit()
    print("accuracy %.3f" % result.metrics["accuracy"])
    print("checkpoint %s" % result.checkpoint.path)


if __name__ == "__main__":
    main()
