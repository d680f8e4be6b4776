"""Every option of `ray start` of an installed Ray against `raylet-c start`: served, accepted without effect, or refused with a reason;
and raylet-c/cli/README.md says which. Also the exit statuses and texts that need no cluster.

usage: flags_test.py --env .venv-2.60.0 [--raylet-c build/raylet-c]      (prints TAP; seconds)
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, "../../raylet-c/cli/README.md")
LIST = """import json
from ray.scripts.scripts import start
plain = lambda value: value if isinstance(value, (int, str, bool)) else None
print(json.dumps([[p.opts + p.secondary_opts, p.is_flag or p.count, p.type.name, plain(p.default)] for p in start.params]))
"""
# Not equal on purpose; each is in the README's table.
DEFAULTS = {"--dashboard-agent-listen-port": "52365", "--min-worker-port": "10002", "--max-worker-port": "19999"}
NOWHERE = "127.0.47.1:1"  # nothing listens there


def run(args, *words, seconds=60, env=None):
    done = subprocess.run([args.raylet_c, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=seconds, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout


def ray_options(args):
    """[(names, is a switch, type, default)] by click, from the installed package."""
    import json

    out = subprocess.run([os.path.join(args.env, "bin/python"), "-W", "ignore", "-c", LIST], check=True, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def readme_table():
    """{option: what the README's table says of it}"""
    rows = {}
    with open(README, encoding="utf-8") as f:
        for line in f:
            match = re.match(r"\| ((?:`--?[a-z-]+`(?:, )?)+) \| (\w+)", line)
            if match:
                rows.update({name: match.group(2) for name in re.findall(r"`(--?[a-z-]+)`", match.group(1))})
    return rows


def kinds(args):
    """{option: served, ignored, head or refused} by what the command does with it, not by what it says."""
    found = {}
    for names, is_switch, kind, _ in ray_options(args):
        for name in names:
            number = "20000" if name == "--max-worker-port" else "1"
            value = [] if is_switch else [f"{name}={'true' if kind == 'boolean' else number if kind == 'integer' else 'x'}"]
            status, out = run(args, "start", f"--address={NOWHERE}", *(value if value and name.startswith("--") else [name]), "--help")
            if status == 0:
                found[name] = "accepted"
            elif status == 1 and "is for a head node" in out:
                found[name] = "head"
            elif status == 1 and re.search(rf"{name}: .{{20,}}", out):
                found[name] = "refused"
            else:
                found[name] = f"status {status}: {out.strip()[-200:]}"
    return found


def options(args):
    """Nothing is unknown, and the README says of each what the command does."""
    rows, found = readme_table(), kinds(args)
    wrong = []
    for name, kind in found.items():
        said = rows.get(name)
        if kind == "accepted" and said in ("served", "ignored") or kind == said:
            continue
        wrong.append(f"{name}: does {kind}, README: {said}")
    _, help_text = run(args, "start", "--help")
    without_effect = re.search(r"Accepted without effect.*?:\n(.*?)\n\n", help_text, re.S).group(1).split()
    wrong += [f"{n}: README {rows.get(n)}, --help: ignored" for n in without_effect if n in found and rows.get(n) != "ignored"]
    wrong += [f"{n}: README ignored, --help not" for n in found if rows.get(n) == "ignored" and n not in without_effect and n != "-v"]
    assert not wrong, "\n".join(wrong)
    return f"{len(found)} options"


def defaults(args):
    """Defaults that click knows are in our help."""
    _, text = run(args, "start", "--help")
    for names, _, _, default in ray_options(args):
        if names[0] in DEFAULTS and default is not None:
            assert str(default) == DEFAULTS[names[0]], (names, default)
    for name, value in DEFAULTS.items():
        assert value in text, f"{name}: {value} is not in the help"


def statuses(args):
    """As `ray start`: 2 for wrong words, 1 for what cannot be."""
    ray_dir = f"--ray-dir={os.path.abspath(args.env)}"
    for status, words, text in [
        (2, ["start", "--addres=x:1"], "No such option: --addres"),
        (2, ["start", f"--address={NOWHERE}", "--num-cpus=two"], "--num-cpus"),
        (2, ["start", f"--address={NOWHERE}", "word"], "unexpected extra argument"),
        (1, ["start"], "--address"),
        (1, ["start", f"--address={NOWHERE}", "--port=1"], "head"),
        (1, ["start", "--address=nonsense", ray_dir], "HOST:PORT"),
        (1, ["start", f"--address={NOWHERE}", ray_dir, "--node-manager-port=7000", "--object-manager-port=7000"], "both 7000"),
        (2, ["health-check", "--adress=x"], "No such option"),
        (1, ["health-check", f"--address={NOWHERE}", "--timeout=1", ray_dir], "did not answer"),
        (2, ["stop", "--grace-period=soon"], "--grace-period"),
        (2, ["info", "--yaml"], "No such option"),
    ]:
        got, out = run(args, *words)
        assert got == status and text in out, f"{words}: status {got} instead of {status}: {out}"


def labels_files(args):
    """The labels of a file are those that PyYAML reads; what is no map of strings is refused by both."""
    import yaml

    texts = ["a: b\n", "# c\n---\ngpu: A100 # x\nzone: 'us-west'\n", "a: \"x y\"\n", "v: 1.2.3\nurl: a:b\n", "a: 1\n", "a: true\n",
             "a:\n", "- a\n", "a:\n  b: c\n", "[a]\n", "", "a: 2024-01-01\n", "a: 0x10\n", "1: a\n", "a: null\n", "a: 'it''s'\n",
             "a: {b: c}\n", "a: 1e3\n", "a: .5\n"]
    wrong = []
    for text in texts:
        read = yaml.safe_load(text)
        good = isinstance(read, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in read.items())
        ours = parse_here(args, text)
        # 1e3 is a string to PyYAML and a number to YAML 1.2: refusing it is safe
        if ours != (read if good else None) and text != "a: 1e3\n":
            wrong.append(f"{text!r}: PyYAML {read if good else None}, here {ours}")
    assert not wrong, "\n".join(wrong)


def parse_here(args, text):
    """The labels by our parser, in a program of three lines around it; None: refused."""
    program = os.path.join(args.scratch, "labels")
    if not os.path.exists(program):
        top = os.path.join(HERE, "../..")
        with open(program + ".c", "w", encoding="utf-8") as f:
            f.write('#include <stdio.h>\n#include "raylet-c/cli/labels_file.h"\n'
                    'static int on(void *a, const char *k, const char *v, rc_error *e)\n'
                    '{\n\t(void)a, (void)e;\n\treturn printf("%s=%s\\n", k, v) < 0;\n}\n'
                    'int main(int n, char **w)\n{\n\trc_error e;\n\treturn n < 2 || rc_labels_file_parse(w[1], on, NULL, &e) != 0;\n}\n')
        subprocess.run(["gcc", "-std=gnu11", "-I" + top, program + ".c", *(os.path.join(top, "raylet-c", s) for s in (
            "cli/labels_file.c", "base/buf.c", "base/status.c")), "-o", program], check=True)
    done = subprocess.run([program, text], stdout=subprocess.PIPE, text=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines()) if done.returncode == 0 else None


TESTS = [
    (options, "every option of ray start is served, accepted without effect or refused with a reason, as the README says"),
    (defaults, "defaults are those of ray start"),
    (statuses, "wrong words end with 2, what cannot be with 1 and a reason"),
    (labels_files, "a labels file is read as PyYAML reads it"),
]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--env", required=True)
    p.add_argument("--raylet-c", default=os.path.join(HERE, "../../build/raylet-c"))
    args = p.parse_args()
    args.raylet_c = os.path.abspath(args.raylet_c)
    failed = 0
    print(f"TAP version 13\n1..{len(TESTS)}", flush=True)
    with tempfile.TemporaryDirectory() as args.scratch:
        for number, (test, sentence) in enumerate(TESTS, 1):
            try:
                note = test(args)
                print(f"ok {number} - {sentence}" + (f" ({note})" if note else ""), flush=True)
            except Exception:
                failed += 1
                print(f"not ok {number} - {sentence}")
                print("\n".join("# " + line for line in traceback.format_exc().splitlines()), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
