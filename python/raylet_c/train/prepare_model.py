"""ray.train.torch.prepare_model(model, parallel_strategy="fsdp"), on the CPU too, where Ray refuses it. Elsewhere Ray's own does
it: it takes torch's FullyShardedDataParallel at the moment of the call."""
import functools
import os
import sys
import types

from raylet_c import _seam

_stock = {}  # our function -> Ray's
_active = False


def _replace(old, new, holders):
    for module in holders:
        if isinstance(module, types.ModuleType):
            names = object.__getattribute__(module, "__dict__")  # so that a lazy module stays unloaded
            for name in [n for n, value in list(names.items()) if value is old]:
                names[name] = new


def _serve(module_name):
    """Puts ours in place of the function that this module of Ray defines, wherever that is held."""
    module = sys.modules[module_name]
    stock = module.prepare_model
    if not _active or stock in _stock:
        return

    @functools.wraps(stock)
    def prepare_model(model, move_to_device=True, parallel_strategy="ddp", parallel_strategy_kwargs=None):
        import ray.train.torch
        import torch

        if not parallel_strategy or parallel_strategy == "ddp" or os.environ.get("RAYLET_C_FSDP") == "0":
            return stock(model, move_to_device, parallel_strategy, parallel_strategy_kwargs)
        device = move_to_device if isinstance(move_to_device, torch.device) else ray.train.torch.get_device()
        device = device[0] if isinstance(device, list) else device
        if device.type != "cpu":
            return stock(model, move_to_device, parallel_strategy, parallel_strategy_kwargs)
        model = stock(model, move_to_device, None)
        if ray.train.get_context().get_world_size() == 1:
            return model
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, **{"device_id": device, **(parallel_strategy_kwargs or {})})

    _stock[prepare_model] = stock
    in_its_import = getattr(module.__spec__, "_initializing", False)  # then nobody else holds it
    _replace(stock, prepare_model, [module] if in_its_import else list(sys.modules.values()))


def install():
    """In modules that are there, and in the others when they are imported."""
    global _active
    _active = True
    for name in _seam.RAY:
        _seam.waiting.add((name,), (name,), functools.partial(_serve, name))


def uninstall():
    global _active
    _active = False
    holders = list(sys.modules.values())
    while _stock:
        ours, stock = _stock.popitem()
        _replace(ours, stock, holders)
