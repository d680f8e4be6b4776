"""What the pod test asks for from inside the head's pod; prints one line of JSON.

usage: _driver.py look          nodes, and what the autoscaler is told of them
       _driver.py work          a GPU task on the worker: where it ran, with what
       _driver.py long SECONDS  a GPU task that takes so long, and one more while its node drains
"""
import json
import logging
import os
import sys
import time

import ray
from ray._raylet import GcsClient
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.core.generated import autoscaler_pb2, gcs_pb2

ADDRESS = os.environ["RAY_ADDRESS"]


def autoscaler_states():
    """{instance id: what the autoscaler's state service says}"""
    state = get_cluster_resource_state(GcsClient(address=ADDRESS))
    return {n.instance_id: {"status": autoscaler_pb2.NodeStatus.Name(n.status), "idle_ms": n.idle_duration_ms, "type": n.ray_node_type_name,
                            "total": dict(n.total_resources), "available": dict(n.available_resources)} for n in state.node_states}


def look():
    nodes = GcsClient(address=ADDRESS).get_all_node_info(timeout=10).values()
    return {"nodes": [{"id": n.node_id.hex(), "alive": n.state == gcs_pb2.GcsNodeInfo.ALIVE, "head": n.is_head_node,
                       "ip": n.node_manager_address, "instance": n.instance_id, "type": n.node_type_name, "resources": dict(n.resources_total),
                       "death": n.death_info.reason_message} for n in nodes],
            "autoscaler": autoscaler_states()}


@ray.remote(num_gpus=1, max_retries=0)
def where(seconds=0, mark=None):
    import resource
    import socket

    if mark:
        with open(mark, "w"):
            pass
    time.sleep(seconds)
    return {"host": socket.gethostname(), "gpus": ray.get_gpu_ids(), "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "fi": os.environ.get("FI_PROVIDER")}


def work():
    return ray.get(where.remote(), timeout=120)


def long(seconds):
    """The mark tells the test that the task runs; what is submitted while the node drains must not run there."""
    task = where.remote(float(seconds), "/tmp/task-runs")
    worker = next(n for n in look()["nodes"] if not n["head"] and n["alive"])["instance"]
    deadline = time.monotonic() + 60
    while autoscaler_states().get(worker, {}).get("status") != "DRAINING":
        if time.monotonic() > deadline:
            return {"error": "the node was never seen draining", "states": autoscaler_states()}
        time.sleep(0.1)
    late = where.remote()
    early, _ = ray.wait([late], timeout=1.5)
    return {"result": ray.get(task, timeout=60), "late_ran": bool(early)}


if __name__ == "__main__":
    command = sys.argv[1]
    if command != "look":
        ray.init(address=ADDRESS, log_to_driver=False, logging_level=logging.ERROR)
    print("RESULT " + json.dumps({"look": look, "work": work, "long": long}[command](*sys.argv[2:])), flush=True)
