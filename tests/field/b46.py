"""Report B46: resources and labels of a node are those of Ray's own node for the same flags, and every selector finds it."""
import json

import _b
import _field
from _b import step, wait_for
from _field import expect

FLAGS = ["--num-gpus=0"]


def labels_of(f):
    """Labels of the user, and --labels in the release's spelling; 2.35.0 reserves all of ray.io/ for itself."""
    if _b.is_260(f):
        labels = {"team": "blue", "ray.io/market-type": "spot"}
        return labels, "--labels=" + ",".join(f"{k}={v}" for k, v in labels.items())
    return {"team": "blue"}, "--labels=" + json.dumps({"team": "blue"})


def entry(ray, node):
    return next(n for n in ray.nodes() if n["NodeID"] == node.node_id)


def compared(f):
    """What the head has of our node and of a stock one that was started with the same flags."""
    f.start_head(seconds=120)
    labels, option = labels_of(f)
    options = (*FLAGS, option, "--memory=500000000")
    nodes = {
        "ours": f.start_node(options=options, resources={"special": 2}, num_cpus=3),
        "stock": f.start_node(options=options, resources={"special": 2}, num_cpus=3, env={"RAYLET_C": "0"}),
    }
    ray = _b.connect(f)
    with step("resources and labels equal those of the stock node for the same flags"):
        seen = {}
        for name, node in nodes.items():
            n = entry(ray, node)
            resources = {k.replace(node.ip, "IP"): v for k, v in n["Resources"].items()}
            found = {k: v.replace(node.node_id, "ID").replace(node.ip, "IP") for k, v in n.get("Labels", {}).items()
                     if not k.startswith("raylet-c/")}  # our own, beside the stock node's
            seen[name] = {"resources": resources, "labels": found, "name": n["NodeName"].replace(node.ip, "IP"), "keys": sorted(n)}
        for what in seen["stock"]:
            expect(seen["ours"][what] == seen["stock"][what], f"{what}: ours {seen['ours'][what]}, stock {seen['stock'][what]}")
        expect("GPU" not in seen["ours"]["resources"] and seen["ours"]["resources"]["special"] == 2, seen["ours"])
        expect(all(seen["ours"]["labels"].get(k) == v for k, v in labels.items()), seen["ours"]["labels"])
    selectors_find(f, ray, nodes["ours"], {"special": 1})


def selectors_find(f, ray, node, custom):
    @ray.remote(num_cpus=0)
    def where():
        return ray.get_runtime_context().get_node_id()

    address = next(k for k in entry(ray, node)["Resources"] if k.startswith("node:"))
    ways = {"node:address": {"resources": {address: 0.01}}}
    if len(f.nodes) == 1:
        ways["custom resource"] = {"resources": custom}
    if _b.is_260(f):
        ways["label"] = {"label_selector": {"ray.io/node-id": node.node_id}}
        ways["label of the user"] = {"label_selector": {"team": "in(blue,red)", "ray.io/node-id": node.node_id}}
    else:
        from ray.util.scheduling_strategies import In, NodeLabelSchedulingStrategy

        ways["label"] = {"scheduling_strategy": NodeLabelSchedulingStrategy(hard={"ray.io/node_id": In(node.node_id)})}
        ways["label of the user"] = {"scheduling_strategy": NodeLabelSchedulingStrategy(
            hard={"team": In("blue", "red"), "ray.io/node_id": In(node.node_id)})}
    for name, options in ways.items():
        with step(f"a task with a {name} selector runs on the node"):
            expect(ray.get(where.options(**options).remote(), timeout=60) == node.node_id, "it ran elsewhere")
    with step("a GPU that the node was told not to have is not offered"):
        expect(not ray.wait([where.options(num_gpus=1).remote()], timeout=2)[0], "a task with a GPU ran")


def host_name(f):
    """A host name as address of the node."""
    f.start_head(seconds=120)
    option = labels_of(f)[1]
    node = f.start_node(ip="localhost", options=(*FLAGS, option), resources={"special": 2})
    ray = _b.connect(f)
    with step("the node has one name:address resource"):
        n = entry(ray, node)
        found = [k for k in n["Resources"] if k.startswith("node:")]
        expect(len(found) == 1 and found[0] == f"node:{n['NodeManagerAddress']}", (found, n["NodeManagerAddress"]))
    selectors_find(f, ray, node, {"special": 1})


if __name__ == "__main__":
    _field.run(compared, host_name, limit=240)
