"""Checks that programs run on glibc 2.35: no newer symbol version, and no shared library but glibc's own.

    python3 bazel/check_glibc.py PROGRAM...
"""
import re
import subprocess
import sys

NEWEST = (2, 35)
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
VERSION = re.compile(r"\(?GLIBC_(\d+)\.(\d+)(?:\.\d+)?\)?\s+(\S+)$")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def problems_of(program):
    found = []
    for line in run("objdump", "-T", program).splitlines():
        match = VERSION.search(line)
        if match and (int(match.group(1)), int(match.group(2))) > NEWEST:
            found.append("needs %s of glibc %s.%s" % (match.group(3), match.group(1), match.group(2)))
        elif re.search(r"\bGLIBC_PRIVATE\b", line) and "*UND*" in line:
            found.append("needs a private symbol of glibc: " + line.split()[-1])
    for line in run("objdump", "-p", program).splitlines():
        words = line.split()
        if words[:1] == ["NEEDED"] and words[1] not in GLIBC:
            found.append("needs the shared library " + words[1])
        if words[:1] in (["RPATH"], ["RUNPATH"]):
            found.append("has a fixed library path " + words[1])
    return found


def main():
    failed = False
    for number, program in enumerate(sys.argv[1:], 1):
        found = problems_of(program)
        for problem in found:
            print("# %s %s" % (program, problem))
        failed = failed or bool(found)
        print("%s %d - %s runs on glibc %d.%d" % (("not ok" if found else "ok", number, program) + NEWEST))
    print("1..%d" % (len(sys.argv) - 1))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
