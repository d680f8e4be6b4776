"""Writes data/pod_types.json: what a pod template may hold, from the wheel of the `kubernetes` client (Apache-2.0), whose classes are
generated from the API server's own OpenAPI document.

usage: make_pod_types.py kubernetes-31.0.0-py2.py3-none-any.whl > data/pod_types.json      (pip download --no-deps kubernetes==31.0.0)

Form: {type: {field: [type of the value, required]}}; list[T] and dict(str, T) as the client writes them.
"""
import ast
import json
import re
import sys
import zipfile

ROOTS = ("V1PodTemplateSpec", "V1ObjectMeta", "V1Secret", "V1Service")


def read_models(wheel):
    models = {}
    for name in wheel.namelist():
        if not re.fullmatch(r"kubernetes/client/models/v1_\w+\.py", name):
            continue
        text = wheel.read(name).decode()
        cls = re.search(r"^class (\w+)\(", text, re.M).group(1)
        types, keys = (ast.literal_eval(re.search(rf"^    {table} = (\{{.*?\}})\n\n", text, re.M | re.S).group(1))
                       for table in ("openapi_types", "attribute_map"))
        required = set(re.findall(r"client_side_validation and (\w+) is None", text))
        models[cls] = {keys[attribute]: [kind, attribute in required] for attribute, kind in types.items()}
    return models


def main(path):
    models = read_models(zipfile.ZipFile(path))
    wanted, found = list(ROOTS), {}
    while wanted:
        name = wanted.pop()
        if name in models and name not in found:
            found[name] = models[name]
            wanted += [t for kind, _ in models[name].values() for t in re.findall(r"V1\w+", kind)]
    print("{")
    print(",\n".join(f" {json.dumps(name)}: {json.dumps(found[name], separators=(',', ':'))}" for name in sorted(found)))
    print("}")


main(*sys.argv[1:])
