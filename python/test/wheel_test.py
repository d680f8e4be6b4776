"""The wheel is complete: names, modes, hashes, and programs that run from where pip would put them."""
import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

number = 0
failed = False


def check(right, sentence):
    global number, failed
    number += 1
    failed = failed or not right
    print("%s %d - %s" % ("ok" if right else "not ok", number, sentence))


def run(*command, env=None):
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, universal_newlines=True).stdout


def main():
    path = sys.argv[1]
    wheel = zipfile.ZipFile(path)
    names = wheel.namelist()
    info = [n for n in names if n.endswith(".dist-info/METADATA")][0].rsplit("/", 1)[0]
    version = info[len("raylet_c-"):-len(".dist-info")]
    check(os.path.basename(path) == "raylet_c-%s-py3-none-manylinux_2_35_x86_64.whl" % version, "the file name has version and tag")
    script = "raylet_c-%s.data/scripts/raylet-c" % version
    module = "raylet_c/_train.abi3.so"
    needed = ["raylet_c.pth", "raylet_c/__init__.py", "raylet_c/_seam.py", "raylet_c/train/__init__.py", "raylet_c/bin/raylet"]
    needed += [module, script] + [info + "/" + n for n in ("LICENSE", "METADATA", "RECORD", "WHEEL")]
    check(not [n for n in needed if n not in names], "it holds the package, the daemon, the engine, the command and its description")
    check(all(wheel.getinfo(n).external_attr >> 16 & 0o111 for n in ("raylet_c/bin/raylet", script)), "both programs are executable")
    check(b"\nLicense: Apache-2.0\n" in wheel.read(info + "/METADATA"), "the licence is named")
    recorded = {}
    for line in wheel.read(info + "/RECORD").decode().splitlines():
        name, digest, size = line.rsplit(",", 2)
        recorded[name] = (digest, size)
    right = set(recorded) == set(names)
    for name in names:
        if not name.endswith("/RECORD"):
            data = wheel.read(name)
            digest = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            right = right and recorded.get(name) == (digest, str(len(data)))
    check(right, "RECORD lists every file with its hash and size")
    with tempfile.TemporaryDirectory() as top:
        packages = os.path.join(top, "lib/python3.9/site-packages")
        os.makedirs(os.path.join(top, "bin"))
        wheel.extractall(packages)
        command = os.path.join(top, "bin/raylet-c")
        os.rename(os.path.join(packages, script), command)
        for program in (command, os.path.join(packages, "raylet_c/bin/raylet")):
            os.chmod(program, 0o755)
        text = subprocess.run([command, "version"], stdout=subprocess.PIPE, universal_newlines=True).stdout
        check(text.startswith("raylet-c %s (ray " % version), "the command runs and says its version")
        shown = run("nm", "-D", "--defined-only", os.path.join(packages, module)).split()[2::3]
        check(shown == ["PyInit__train"], "the engine's library shows its start and nothing else: %s" % shown)
        start = "import site; site.addsitedir(%r); " % packages
        for value, active in (("fsdp", True), ("0", False)):
            look = "import sys; print(sys.meta_path[0]); from raylet_c import _train; print(_train.Engine)"
            text = run(sys.executable, "-S", "-c", start + look, env=dict(os.environ, RAYLET_C=value))
            check(("_seam.Waiting" in text) == active and "raylet_c._train.Engine" in text,
                  "with RAYLET_C=%s the seam waits%s where pip puts it, and the engine can be imported" % (value, "" if active else " not"))
        ray = os.path.join(packages, "ray")
        os.makedirs(os.path.join(ray, "core/src/ray/raylet"))
        for name, content in (("_version.py", 'version = "2.60.0"\n'), ("core/src/ray/raylet/raylet", "stock\n")):
            with open(os.path.join(ray, name), "w") as f:
                f.write(content)
        done = subprocess.run([command, "enable"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        with open(os.path.join(ray, "core/src/ray/raylet/raylet"), "rb") as f:
            installed = f.read()
        check(done.returncode == 0 and installed == wheel.read("raylet_c/bin/raylet"), "enable finds daemon and ray in its environment")
        if done.returncode:
            print("# " + done.stdout)
    print("1..%d" % number)
    sys.exit(1 if failed else 0)


main()
