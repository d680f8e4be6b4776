"""Tensors in what users pass around: tuples, lists, dicts and dataclasses of them."""
import torch


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from tensors_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors_in(v)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name))


def map_tensors(fn, value):
    """value with fn on its tensors; the same object when fn changes none."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, (tuple, list)):
        new = [map_tensors(fn, v) for v in value]
        if all(a is b for a, b in zip(new, value)):
            return value
        return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
    if isinstance(value, dict):
        new = {k: map_tensors(fn, v) for k, v in value.items()}
        if all(new[k] is v for k, v in value.items()):
            return value
        if type(value) is dict:
            return new
    if isinstance(value, dict) or hasattr(value, "__dataclass_fields__"):
        from torch.distributed.utils import _apply_to_tensors

        return _apply_to_tensors(fn, value)
    return value
