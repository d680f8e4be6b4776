"""The manifests of deploy/kuberay: are they what KubeRay's CRDs allow, and what pods does KubeRay make of them?

usage: manifest_test.py      (any Python with PyYAML; prints TAP; seconds)
"""
import glob
import json
import os
import sys
import traceback

import yaml

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import pod_rules  # noqa: E402
import schema  # noqa: E402

MANIFESTS = sorted(glob.glob(os.path.join(HERE, "../../deploy/kuberay/*.yaml")))
# The oldest KubeRay that a manifest is for, and the newest that we know the rules of.
RELEASES = {"2.35.0": ("1.3", "1.7"), "2.60.0": ("1.5", "1.7")}


def load(path):
    with open(path, encoding="utf-8") as f:
        return yaml.safe_load(f)


def cluster_of(manifest):
    """The RayCluster that is, or that a RayJob makes."""
    if manifest["kind"] == "RayCluster":
        return manifest
    metadata = {**manifest["metadata"], "name": manifest["metadata"]["name"] + "-abcde"}
    return {"metadata": metadata, "spec": manifest["spec"]["rayClusterSpec"]}


def valid():
    for path in MANIFESTS:
        manifest = load(path)
        for kuberay in RELEASES[cluster_of(manifest)["spec"]["rayVersion"]]:
            errors = schema.Validator(kuberay).errors(manifest)
            assert not errors, f"{os.path.basename(path)} under KubeRay {kuberay}: {errors}"
    return f"{len(MANIFESTS)} manifests"


def refused():
    """Each damage to a good manifest is found, at its place."""
    good = load(os.path.join(HERE, "../../deploy/kuberay/raycluster-2.60.0.yaml"))

    def damage(change, kuberay="1.7"):
        bad = json.loads(json.dumps(good))  # parts that a YAML anchor shares become parts of their own
        change(bad, bad["spec"]["workerGroupSpecs"][0], bad["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0])
        errors = schema.Validator(kuberay).errors(bad)
        assert len(errors) == 1, errors
        return errors[0]

    cases = [
        (lambda m, g, c: g.pop("groupName"), "groupName is required"),
        (lambda m, g, c: g.update(replica=2), "unknown field replica"),
        (lambda m, g, c: g.update(replicas="2"), "replicas: '2' is no int"),
        (lambda m, g, c: g["rayStartParams"].update(block=True), "True is no str"),
        (lambda m, g, c: c.pop("name"), "name is required"),
        (lambda m, g, c: c["resources"]["limits"].update(memory="160 Gi"), "is no quantity"),
        (lambda m, g, c: c["securityContext"].update(capabilites={}), "unknown field capabilites"),
        (lambda m, g, c: c["env"].append({"value": "x"}), "name is required"),
        (lambda m, g, c: m["spec"]["authOptions"].update(mode="tokens"), "'tokens' is none of disabled|token"),
        (lambda m, g, c: m.update(apiVersion="ray.io/v1alpha1"), "not 'ray.io/v1'"),
    ]
    for change, text in cases:
        error = damage(change)
        assert text in error, f"{text}: {error}"
    assert "needs KubeRay 1.5" in damage(lambda m, g, c: None, "1.4")
    return f"{len(cases) + 1} damages"


def commands():
    """The words of KubeRay's documentation for such a group, worked out by hand."""
    cluster = load(os.path.join(HERE, "../../deploy/kuberay/raycluster-2.35.0.yaml"))
    host = "raylet-c-2-35-0-head-svc.default.svc.cluster.local"
    worker = pod_rules.build_pod(cluster, cluster["spec"]["workerGroupSpecs"][0], "1.3")["spec"]
    container = worker["containers"][0]
    assert container["command"] == ["/bin/bash", "-lc", "--"]
    assert container["args"] == [
        f"ulimit -n 65536; ray start  --address={host}:6379  --block  --dashboard-agent-listen-port=52365  --memory=171798691840  "
        "--metrics-export-port=8080  --num-cpus=40  --num-gpus=4 "], container["args"]
    assert worker["initContainers"][0]["name"] == "wait-gcs-ready" and f"--address {host}:6379" in worker["initContainers"][0]["args"][0]
    probe = container["readinessProbe"]["exec"]["command"]
    assert probe == ["bash", "-c", "wget -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"], probe
    head = pod_rules.build_pod(cluster, None, "1.7")["spec"]["containers"][0]
    assert head["args"] == ["ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start --head  --block  --dashboard-agent-listen-port=52365  "
                            "--dashboard-host=0.0.0.0  --memory=17179869184  --metrics-export-port=8080  --num-cpus=0 "], head["args"]


def overwritten():
    """With the annotation the command is the user's, and KubeRay's own is in the environment."""
    cluster = load(os.path.join(HERE, "../../deploy/kuberay/raycluster-2.60.0-raylet-c.yaml"))
    group = cluster["spec"]["workerGroupSpecs"][0]
    pod = pod_rules.build_pod(cluster, group, "1.7")
    container = pod["spec"]["containers"][0]
    assert container["args"] == group["template"]["spec"]["containers"][0]["args"]
    secrets = {"raylet-c-2-60-0": {"auth_token": "t"}}
    env = pod_rules.environment(container, "pod-x", "default", pod["metadata"]["labels"], secrets)
    assert env["KUBERAY_GEN_RAY_START_CMD"].startswith("ray start  --address=raylet-c-2-60-0-head-svc.default.svc.cluster.local:6379  --block ")
    assert env["RAY_AUTH_MODE"] == "token" and env["RAY_AUTH_TOKEN"] == "t" and env["RAY_CLOUD_INSTANCE_ID"] == "pod-x"
    assert env["RAY_NODE_TYPE_NAME"] == "gpu" and env["RAY_CLUSTER_NAME"] == "raylet-c-2-60-0"
    assert container["readinessProbe"]["httpGet"] == {"path": "/api/healthz", "port": 52365}
    init = pod["spec"]["initContainers"][0]
    assert {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "FQ_RAY_IP"} <= {e["name"] for e in init["env"]}


def quantities():
    q = pod_rules.quantity
    assert [q(t) for t in ("2", 2, "500m", "1500m", "160Gi", "1.5G", "1k")] == [2, 2, 1, 2, 160 * 2**30, 1500000000, 1000]
    limits = {"resources": {"limits": {"google.com/tpu": "4", "nvidia.com/mig-1g.5gb": "2"}}}
    params = pod_rules.complete_params({}, False, "h:1", {}, limits["resources"], "1.7")
    assert params["resources"] == "'{\"TPU\":4}'" and params["num-gpus"] == "2"
    params = pod_rules.complete_params({"log-color": "False", "no-monitor": "false", "include-log-monitor": "false"}, False, "h:1",
                                       {"labels": {"b": "2", "a": "1"}}, {}, "1.7")
    words = pod_rules.start_command(params, False, "1.7").split()
    assert "--log-color=False" in words and "--include-log-monitor=false" in words and "--labels=a=1,b=2" in words
    assert not any("no-monitor" in w for w in words)


def drain_fits():
    """The drain's deadline must come before the kubelet's SIGKILL."""
    for path in MANIFESTS:
        for group in cluster_of(load(path))["spec"]["workerGroupSpecs"]:
            spec = group["template"]["spec"]
            env = {e["name"]: e.get("value") for e in spec["containers"][0]["env"]}
            assert int(env["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"]) + 10 <= spec["terminationGracePeriodSeconds"], path


TESTS = [
    (valid, "the manifests are valid under the oldest and the newest KubeRay that they are for"),
    (refused, "a damaged manifest is refused at the right place"),
    (commands, "head and worker get the commands, probes and init container of KubeRay"),
    (overwritten, "with overwrite-container-cmd the user's command runs, with KubeRay's own in the environment"),
    (quantities, "amounts, accelerators, booleans and labels become flags"),
    (drain_fits, "the drain ends before the grace period of the pod"),
]


def main():
    failed = 0
    print(f"TAP version 13\n1..{len(TESTS)}")
    for number, (test, sentence) in enumerate(TESTS, 1):
        try:
            note = test()
            print(f"ok {number} - {sentence}" + (f" ({note})" if note else ""))
        except Exception:
            failed += 1
            print(f"not ok {number} - {sentence}")
            print("\n".join("# " + line for line in traceback.format_exc().splitlines()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
