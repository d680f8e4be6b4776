"""The image recipe without a container builder: its instructions are run in a Debian root made by debootstrap, in which the base image
is stood in for by what matters of one: a user `ray` (1000) with Ray from PyPI in /home/ray/anaconda3. Then the user `ray` runs a head
and a worker from the result. No image is built.

usage: image_test.py --wheel build/raylet_c-*.whl [--release 2.60.0] [--root DIR] [--debootstrap PROGRAM]      (root; network; minutes)

--root: a folder to keep the Debian root in; one that is there is used again. PACKAGES of the recipe stay out: torch is large.
"""
import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(os.path.join(HERE, "../.."))
RECIPE = os.path.join(TOP, "deploy/image/Dockerfile")
HOME = "/home/ray/anaconda3"
ENV = {"PATH": f"{HOME}/bin:/usr/local/bin:/usr/bin:/bin", "HOME": "/home/ray", "LANG": "C.UTF-8", "RAY_USAGE_STATS_ENABLED": "0",
       "PYTHONWARNINGS": "ignore"}

# A head and a worker, as a pod of one would have them; the second start is of the package that `raylet-c enable` changed.
USE = """set -e
raylet-c status | grep -q '^enabled'
STORE=--object-store-memory=100000000
ray start --head --node-ip-address=127.0.47.30 --port=24730 --num-cpus=0 $STORE --include-dashboard=false > /tmp/head.log 2>&1
raylet-c health-check --address 127.0.47.30:24730
raylet-c start --address=127.0.47.30:24730 --node-ip-address=127.0.47.31 --num-cpus=1 $STORE
raylet-c info | grep ALIVE
raylet-c stop
ray start --address=127.0.47.30:24730 --node-ip-address=127.0.47.32 --num-cpus=1 $STORE > /tmp/worker.log 2>&1
raylet-c info | grep -A5 ALIVE | grep 'daemon: raylet-c'
raylet-c stop --all
"""


def instructions(path):
    """[(word, rest)] of a Dockerfile; comments gone, continued lines joined."""
    with open(path, encoding="utf-8") as f:
        text = "".join(line for line in f if not line.startswith("#"))
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]
    return [line.split(None, 1) for line in lines]


def run(*words, **options):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)[:300]}: status {done.returncode}: {done.stdout[-2500:]}")
    return done.stdout


def inside(root, script, user="1000:1000", env=None, binds=()):
    """A shell script in the root, in mount and pid namespaces of its own: nothing that it starts outlives it."""
    setup = ["set -e", "mount -t proc none proc", "mkdir -p dev/shm", "mount -t tmpfs -o mode=1777 none dev/shm",
             "mount -t tmpfs -o mode=1777 none tmp"]
    for device in ("null", "zero", "urandom", "random", "tty"):
        setup += [f"touch dev/{device}", f"mount --bind /dev/{device} dev/{device}"]
    for source, target in binds:
        setup += [f"mkdir -p .{target}", f"mount --bind {shlex.quote(source)} .{target}"]
    setup.append(f"exec /usr/sbin/chroot --userspec={user} . /bin/bash -c {shlex.quote(script)}")
    return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", "\n".join(setup), cwd=root,
               env={**ENV, **(env or {})}, timeout=900)


def make_root(args, root):
    if not os.path.exists(os.path.join(root, "bin/bash")):
        # C.UTF-8 is there without locales; tar and the like come with the minimal variant
        run(args.debootstrap, "--variant=minbase", "--include=python3,python3-venv,procps", "bookworm", root,
            "http://deb.debian.org/debian", env={**os.environ, **({"DEBOOTSTRAP_DIR": args.debootstrap_dir} if args.debootstrap_dir else {})})


def make_base(args, root):
    """What the recipe's FROM would bring: the user, and Ray where the official images have it."""
    if not re.search("^ray:", _read(os.path.join(root, "etc/passwd")), re.M):
        inside(root, "useradd -m -u 1000 -s /bin/bash ray", user="0:0", env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    shutil.rmtree(root + HOME, ignore_errors=True)
    with tempfile.TemporaryDirectory() as wheels:
        run(sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp",
            "--abi=cp311", "--abi=abi3", "--abi=none", "--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64",
            "--platform=any", "-d", wheels, f"ray=={args.release}", "setuptools<81", "click<8.2")
        os.chmod(wheels, 0o755)
        inside(root, f"python3 -m venv {HOME} && pip install -q --no-index --find-links /wheels ray setuptools",
               binds=[(wheels, "/wheels")])


def build(args, root, context):
    """Runs the recipe; returns how many instructions it had."""
    env, count = {}, 0
    for word, rest in instructions(RECIPE):
        count += 1
        if word == "ARG":
            name, _, value = rest.partition("=")
            env[name] = "" if name == "PACKAGES" else value.strip('"')
        elif word == "COPY":
            source, target = rest.split()
            os.makedirs(root + target, exist_ok=True)
            shutil.copy(os.path.join(context, source), root + target)
        elif word == "RUN":
            mount = re.match(r"--mount=type=bind,source=(\S+?),target=(\S+)\s+", rest)
            print("\n".join("# " + line for line in inside(root, rest[mount.end():], env=env, binds=[
                (os.path.join(context, mount.group(1)), mount.group(2))]).strip().splitlines()[-4:]), flush=True)
        else:
            assert word == "FROM" and rest == "${BASE}", f"the test does not know {word} {rest}"
    return count


def _read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def why_not(args):
    if os.geteuid() != 0:
        return "needs root"
    if not shutil.which(args.debootstrap):
        return f"there is no {args.debootstrap}"
    return None


def test(args, root):
    make_root(args, root)
    make_base(args, root)
    with tempfile.TemporaryDirectory() as context:  # as a user would lay it out
        os.chmod(context, 0o755)
        os.makedirs(os.path.join(context, "dist"))
        shutil.copy(args.wheel, os.path.join(context, "dist"))
        shutil.copytree(os.path.join(TOP, "examples"), os.path.join(context, "examples"))
        print(f"# {build(args, root, context)} instructions", flush=True)
    print("\n".join("# " + line for line in inside(root, USE).splitlines() if re.search("ALIVE|Stopped|daemon", line)), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--wheel", default=next(iter(glob.glob(os.path.join(TOP, "build/raylet_c-*.whl"))), None))
    p.add_argument("--release", default="2.60.0")
    p.add_argument("--root")
    p.add_argument("--debootstrap", default="debootstrap")
    p.add_argument("--debootstrap-dir", help="where its scripts are, when not in /usr/share/debootstrap")
    args = p.parse_args()
    sentence = f"kuberay/image: the recipe's instructions work in a Debian root with Ray {args.release}, and user ray runs nodes from it"
    reason = why_not(args)
    print("TAP version 13\n1..1", flush=True)
    if reason:
        print(f"ok 1 - {sentence} # SKIP {reason}")
        return
    own = None if args.root else tempfile.mkdtemp(prefix="rki.", dir="/tmp")
    try:
        test(args, os.path.abspath(args.root or own))
        print(f"ok 1 - {sentence}")
    except Exception:
        print(f"not ok 1 - {sentence}")
        print("\n".join("# " + line for line in traceback.format_exc().splitlines()))
        sys.exit(1)
    finally:
        if own:
            shutil.rmtree(own, ignore_errors=True)


if __name__ == "__main__":
    main()
