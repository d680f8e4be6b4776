"""What KubeRay makes of a RayCluster: the pod of a head or of a worker, as far as the containers' commands, environment and probes go.

Our own statement of the rules in ray-operator/controllers/ray/common/pod.go and utils/constant.go, for the two ends of what is in use:
  "1.3"  release 1.3.2: login shell, a fixed limit of open files, probes by wget
  "1.7"  release 1.7.0 (read at commit bc86bb721c92): no login shell, RAY_START_ULIMIT_OPEN_FILES, one HTTP probe from Ray 2.53.0 on,
         tokens (authOptions)
Left out: GCS fault tolerance, autoscaler sidecar, RayService, TLS, multi-host groups, history server.
"""
import copy
import json
import math
import re

UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
# flags of `ray start` that take a boolean as their value
VALUED = {"1.3": ("log-color", "include-dashboard"), "1.7": ("log-color", "include-dashboard", "include-log-monitor")}
# The init container's loop in our own words: every 5 s, and what goes wrong is shown after two minutes only.
WAIT = """
SECONDS=0
until if (( SECONDS <= 120 )); then ray health-check --address {address} > /dev/null 2>&1; else ray health-check --address {address}; fi; do
  echo "after $SECONDS s: the head does not answer"
  sleep 5
done
echo "the head answers"
"""


def quantity(text):
    """A Kubernetes quantity, rounded up to a whole number as Quantity.Value() does."""
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return math.ceil(float(number) * UNITS[unit] - 1e-9)


def shell(kuberay):
    return ["/bin/bash", "-lc" if kuberay == "1.3" else "-c", "--"]


def is_true(annotations, name):
    return (annotations or {}).get(name, "").lower() == "true"


def complete_params(params, head, address, group, resources, kuberay):
    """rayStartParams with what the operator adds; all values are strings."""
    params = dict(params)
    if kuberay != "1.3":
        add_group_resources(params, group.get("resources") or {})
        if group.get("labels"):
            params["labels"] = ",".join(f"{k}={v}" for k, v in sorted(group["labels"].items()))
    if head:
        params.setdefault("dashboard-host", "0.0.0.0")
    else:
        params.setdefault("address", address)
    params.setdefault("metrics-export-port", "8080")
    params["block"] = "true"
    params.setdefault("dashboard-agent-listen-port", "52365")
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if "cpu" in limits or "cpu" in requests:
        params.setdefault("num-cpus", str(quantity(limits.get("cpu", requests.get("cpu")))))
    if "memory" in limits:
        params.setdefault("memory", str(quantity(limits["memory"])))
    custom = json.loads(params.get("resources", "{}").strip("'\"` "))
    for key in sorted(limits):
        if is_gpu(key) and quantity(limits[key]):
            params.setdefault("num-gpus", str(quantity(limits[key])))
        name = {"aws.amazon.com/neuroncore": "neuron_cores", "google.com/tpu": "TPU"}.get(key)
        if name and not {"neuron_cores", "TPU"} & set(custom):
            custom[name] = quantity(limits[key])
            params["resources"] = f"'{json.dumps(custom, separators=(',', ':'))}'"
    return params


def is_gpu(key):
    return key.endswith("gpu") or bool(re.search(r"nvidia\.com/mig-\d+g\.\d+gb$", key))


def add_group_resources(params, resources):
    custom = {}
    for name, amount in resources.items():
        flag = {"cpu": "num-cpus", "memory": "memory"}.get(name.lower()) or ("num-gpus" if is_gpu(name.lower()) else None)
        if flag:
            params[flag] = str(quantity(amount))
        else:
            custom[name] = float(amount)
    if custom:
        params["resources"] = f"'{json.dumps(custom, separators=(',', ':'))}'"


def start_command(params, head, kuberay):
    words = ""
    for name in sorted(params):
        value = params[name]
        if value.lower() in ("true", "false") and name not in VALUED[kuberay]:
            words += f" --{name} " if value.lower() == "true" else ""
        else:
            words += f" --{name}={value} "
    return f"ray start {'--head ' if head else ''}{words}"


def add_env(container, name, value, always=False):
    """value: a string, or the valueFrom of an EnvVar."""
    env = container.setdefault("env", [])
    if always or not any(e["name"] == name for e in env):
        env.append({"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value})


def label_ref(label):
    return {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}


def add_auth(container, cluster_name, auth):
    add_env(container, "RAY_AUTH_MODE", "token")
    add_env(container, "RAY_AUTH_TOKEN", {"secretKeyRef": {"name": auth.get("secretName") or cluster_name, "key": "auth_token"}})


def add_probes(container, head, params, ray_version, kuberay):
    port, seconds = params["dashboard-agent-listen-port"], 5 if head else 2
    tries = "" if kuberay == "1.3" else "--tries 1 "
    commands = [f"wget {tries}-T 2 -q -O- http://localhost:{port}/api/local_raylet_healthz | grep success"]
    if head:
        commands.append(f"wget {tries}-T 10 -q -O- http://localhost:{params.get('dashboard-port', 8265)}/api/gcs_healthz | grep success")
    action = {"exec": {"command": ["bash", "-c", " && ".join(commands)]}}
    if kuberay != "1.3" and tuple(int(n) for n in ray_version.split(".")) >= (2, 53, 0):
        action = {"httpGet": {"path": "/api/healthz", "port": int(port)}}
    for name, delay, failures in (("livenessProbe", 30, 120), ("readinessProbe", 10, 10)):
        container.setdefault(name, {"initialDelaySeconds": delay, "timeoutSeconds": seconds, "periodSeconds": 5, "successThreshold": 1,
                                    "failureThreshold": failures, **action})


def build_pod(cluster, group, kuberay):
    """The pod of a worker group, or (group None) of the head. cluster: a RayCluster as its YAML reads."""
    spec, name, namespace = cluster["spec"], cluster["metadata"]["name"], cluster["metadata"].get("namespace", "default")
    head = group is None
    group = spec["headGroupSpec"] if head else group
    host = f"{name}-head-svc.{namespace}.svc.cluster.local"
    port = spec["headGroupSpec"]["rayStartParams"].get("port", "6379")
    pod = copy.deepcopy(group["template"])
    container = pod["spec"]["containers"][0]
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {
        **metadata.get("labels", {}), "ray.io/is-ray-node": "yes", "ray.io/cluster": name, "ray.io/node-type": "head" if head else "worker",
        "ray.io/group": "headgroup" if head else group["groupName"]}
    if not head:
        init = {"name": "wait-gcs-ready", "image": container["image"], "command": shell(kuberay),
                "args": [WAIT.format(address=f"{host}:{port}")], "env": copy.deepcopy(container.get("env", []))}
        add_env(init, "FQ_RAY_IP", host)
        add_env(init, "RAY_IP", f"{name}-head-svc")
        pod["spec"].setdefault("initContainers", []).append(init)
    auth = spec.get("authOptions")
    if auth and auth.get("mode", "token") == "token" and kuberay != "1.3":
        for c in [container] + [c for c in pod["spec"].get("initContainers", []) if c["name"] == "wait-gcs-ready"]:
            add_auth(c, name, auth)
    params = complete_params(group["rayStartParams"], head, f"{host}:{port}", group, container.get("resources", {}), kuberay)
    command = start_command(params, head, kuberay)
    given = "".join(f" {word} " for word in container.get("command", []) + container.get("args", []))
    if not is_true(cluster["metadata"].get("annotations"), "ray.io/overwrite-container-cmd") and "ray start" not in given:
        limit = "65536" if kuberay == "1.3" else "${RAY_START_ULIMIT_OPEN_FILES:-65536}"
        generated = f"ulimit -n {limit}; {command}"
        container["command"], container["args"] = shell(kuberay), [f"{given} && {generated}" if given else generated]
    if not head:
        add_env(container, "FQ_RAY_IP", host, always=True)
        add_env(container, "RAY_IP", f"{name}-head-svc", always=True)
    add_env(container, "RAY_CLUSTER_NAME", label_ref("ray.io/cluster"), always=True)
    if kuberay != "1.3":
        add_env(container, "RAY_CLUSTER_NAMESPACE", {"fieldRef": {"fieldPath": "metadata.namespace"}}, always=True)
    add_env(container, "RAY_CLOUD_INSTANCE_ID", {"fieldRef": {"fieldPath": "metadata.name"}}, always=True)
    add_env(container, "RAY_NODE_TYPE_NAME", label_ref("ray.io/group"), always=True)
    add_env(container, "KUBERAY_GEN_RAY_START_CMD", command, always=True)
    add_env(container, "RAY_PORT", port)
    add_env(container, "RAY_ADDRESS", f"{'127.0.0.1' if head else host}:{port}")
    add_env(container, "RAY_USAGE_STATS_KUBERAY_IN_USE", "1")
    add_env(container, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1")
    if "plasma-directory" not in params or kuberay == "1.3":
        limits = container.get("resources", {}).get("limits") or container.get("resources", {}).get("requests") or {}
        if not any(m["mountPath"] == "/dev/shm" for m in container.get("volumeMounts", [])):
            volume = {"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": limits.get("memory")}}
            pod["spec"].setdefault("volumes", []).append(volume)
            container.setdefault("volumeMounts", []).append({"name": "shared-mem", "mountPath": "/dev/shm"})
    add_probes(container, head, params, spec.get("rayVersion", "0.0.0"), kuberay)
    return pod


def environment(container, pod_name, namespace, labels, secrets):
    """The container's environment as the kubelet resolves it."""
    env = {}
    for entry in container.get("env", []):
        source = entry.get("valueFrom")
        if not source:
            env[entry["name"]] = expand(entry.get("value", ""), env)
        elif "secretKeyRef" in source:
            env[entry["name"]] = secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
        else:
            path = source["fieldRef"]["fieldPath"]
            label = re.fullmatch(r"metadata\.labels\['(.*)'\]", path)
            env[entry["name"]] = labels[label.group(1)] if label else {"metadata.name": pod_name, "metadata.namespace": namespace}[path]
    return env


def expand(text, env):
    """$(NAME) in a command, argument or value; unknown names stay."""
    return re.sub(r"\$\(([A-Za-z_][\w.-]*)\)", lambda m: env.get(m.group(1), m.group(0)), text)
