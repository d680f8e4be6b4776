"""A structural validator for our manifests: types, required fields, unknown fields, enumerations.

The tables: data/kuberay_types.json states KubeRay's own part of the CRDs rayclusters.ray.io and rayjobs.ray.io, version v1, as its
Go types have it (ray-operator/apis/ray/v1/raycluster_types.go and rayjob_types.go, from which controller-gen makes the CRDs); a
third entry is the KubeRay release that brought the field, and rayStartParams is required as KubeRay up to 1.3 wants it.
data/pod_types.json has the pod templates (see make_pod_types.py). Status and fields for history server, network policy and
embedded storage are left out: a manifest that uses one is refused here, and the table is to be extended.
"""
import json
import os
import re

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
SIMPLE = {"str": str, "bool": bool, "int": int, "float": (int, float), "object": object, "datetime": str}


def load_types():
    types = {}
    for name in ("pod_types.json", "kuberay_types.json"):
        with open(os.path.join(DATA, name), encoding="utf-8") as f:
            types.update(json.load(f))
    return types


def version(text):
    return tuple(int(part) for part in text.split("."))


class Validator:
    def __init__(self, kuberay):
        self.types, self.kuberay = load_types(), version(kuberay)

    def errors(self, manifest):
        kind = manifest.get("kind")
        if kind not in ("RayCluster", "RayJob"):
            return [f"kind {kind!r} is none of RayCluster, RayJob"]
        if manifest.get("apiVersion") != "ray.io/v1":
            return [f"apiVersion is {manifest.get('apiVersion')!r}, not 'ray.io/v1'"]
        return list(self.check(manifest, kind, kind))

    def check(self, value, kind, where):
        listed, mapped = re.fullmatch(r"list\[(.*)\]", kind), re.fullmatch(r"dict\(str, (.*)\)", kind)
        if listed or mapped:
            form = list if listed else dict
            if not isinstance(value, form):
                yield f"{where}: {value!r} is no {form.__name__}"
                return
            for key, item in enumerate(value) if listed else value.items():
                yield from self.check(item, (listed or mapped).group(1), f"{where}[{key!r}]")
        elif kind in self.types:
            yield from self.check_object(value, kind, where)
        elif "|" in kind:
            if value not in kind.split("|"):
                yield f"{where}: {value!r} is none of {kind}"
        elif kind == "str" and re.search(r"\.(limits|requests)\[|\.(sizeLimit|divisor)$", where):
            if isinstance(value, bool) or not isinstance(value, (str, int)) or not QUANTITY.fullmatch(str(value)):
                yield f"{where}: {value!r} is no quantity"
        elif kind == "object" and where.endswith("ort"):  # int or string: ports
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                yield f"{where}: {value!r} is neither a number nor a name"
        elif not isinstance(value, SIMPLE[kind]) or (isinstance(value, bool) and kind in ("int", "float")):
            yield f"{where}: {value!r} is no {kind}"

    def check_object(self, value, kind, where):
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no object"
            return
        fields = self.types[kind]
        for name, (of, required, *since) in fields.items():
            if required and value.get(name) is None:
                yield f"{where}: {name} is required"
        for name, item in value.items():
            if name not in fields:
                yield f"{where}: unknown field {name}"
                continue
            of, _, *since = fields[name]
            if since and version(since[0]) > self.kuberay:
                yield f"{where}.{name}: needs KubeRay {since[0]}"
            yield from self.check(item, of, f"{where}.{name}")
