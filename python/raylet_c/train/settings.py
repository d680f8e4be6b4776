"""Options of the engine's schedule. Given to raylet_c.train.install(), or in the environment; a root takes what stands when it first runs forward.

    install(...)      environment                  is
    two_level         RAYLET_C_TWO_LEVEL=0         gathers and reductions in two levels where ranks are on several nodes (on)
    ranks_per_node    RAYLET_C_RANKS_PER_NODE=4    so many ranks, in their order, make a node; else the ranks of one host
    secondary_shard   RAYLET_C_SECONDARY_SHARD=1   a copy of the gathered parameters is sharded within each node, for backward (off)
    quantize          RAYLET_C_QUANTIZE=int8       messages between nodes: "int8", or "gather=fp8,reduce=int4", or one of the two (off)
    keep_gathered     RAYLET_C_KEEP_GATHERED=2G    bytes of parameters that stay gathered between forward and backward, or "auto" (0)
    master            RAYLET_C_MASTER=float32      a master for each parameter in 16 bits, which Adam, AdamW and SGD step (optim.py; none)
"""
import os
import re
from typing import NamedTuple, Optional, Union

KINDS = {"gather": ("int8", "fp8"), "reduce": ("int8", "int4")}
OPTIONS = ("two_level", "ranks_per_node", "secondary_shard", "quantize", "keep_gathered", "master")
_given = {}  # by install()


class Settings(NamedTuple):
    two_level: bool
    ranks_per_node: int  # 0: by host
    secondary_shard: bool
    quantize_gather: Optional[str]
    quantize_reduce: Optional[str]
    keep_gathered: Union[int, str]  # bytes, or "auto"
    master: Optional[str]  # "float32"


def give(options):
    """What install() was given; wrong values raise here."""
    for name in options:
        if name not in OPTIONS:
            raise TypeError("raylet_c.train has no option %r: %s are there" % (name, ", ".join(OPTIONS)))
    _read({**_given, **options})
    _given.update(options)


def get():
    return _read(_given)


def _read(given):
    value = {name: given.get(name, os.environ.get("RAYLET_C_" + name.upper())) for name in OPTIONS}
    kinds = _kinds(value["quantize"])
    if value["master"] not in (None, "", "float32"):
        raise ValueError("masters are of float32: master=%r is not served" % (value["master"],))
    return Settings(_switch("two_level", value["two_level"], True), _number("ranks_per_node", value["ranks_per_node"] or 0),
                    _switch("secondary_shard", value["secondary_shard"], False), kinds.get("gather"), kinds.get("reduce"),
                    "auto" if value["keep_gathered"] == "auto" else _number("keep_gathered", value["keep_gathered"] or 0),
                    value["master"] or None)


def _switch(name, value, default):
    words = {"": default, "0": False, "1": True, "false": False, "true": True}
    if value is None:
        return default
    if str(value).lower() not in words:
        raise ValueError("%s=%r is neither 0 nor 1" % (name, value))
    return words[str(value).lower()]


def _number(name, value):
    match = re.fullmatch(r"(\d+)\s*([kKmMgG]?)(?:iB)?", str(value))
    if not match:
        raise ValueError("%s=%r is no number" % (name, value))
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]


def _kinds(value):
    """{"gather": kind, "reduce": kind} of "int8", "gather=fp8,reduce=int4" or a dict."""
    if not value or value == "0":
        return {}
    if isinstance(value, str):
        value = dict(part.split("=", 1) for part in value.split(",")) if "=" in value else {"gather": value, "reduce": value}
    for what, kind in value.items():
        if kind is not None and kind not in KINDS.get(what, ()):
            allowed = " and ".join("%s=%s" % (k, " or ".join(v)) for k, v in KINDS.items())
            raise ValueError("quantize: %s=%s is not served: %s are" % (what, kind, allowed))
    return value
