"""Builds the wheel without a build backend: a zip with a fixed order, fixed times and fixed modes, so that the same inputs
give the same bytes.

    build_wheel.py --out WHEEL --version-header H --license FILE --readme FILE --raylet FILE --command FILE --module FILE --pth FILE
        PYTHON_FILE...

Inside: raylet_c/ with the Python files, raylet_c/bin/raylet (the daemon), raylet_c/_train.abi3.so (the FSDP engine), raylet_c.pth,
which Python reads at its start, the `raylet-c` command as a script, and the dist-info. One wheel serves every CPython from 3.9 on:
no file in it is tied to one.
"""
import argparse
import base64
import hashlib
import os
import re
import stat
import zipfile

NAME = "raylet_c"
TAG = "py3-none-manylinux_2_35_x86_64"
TIME = (2020, 1, 1, 0, 0, 0)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def version_of(header):
    match = re.search(rb'^#define RC_VERSION "([^"]+)"', read(header), re.M)
    if not match:
        raise SystemExit('%s has no line: #define RC_VERSION "..."' % header)
    return match.group(1).decode()


def metadata(version, readme):
    return (
        "Metadata-Version: 2.1\n"
        "Name: raylet-c\n"
        "Version: %s\n"
        "Summary: Ray worker nodes on a node daemon in C, and torch FSDP on an engine in C\n"
        "License: Apache-2.0\n"
        "Classifier: License :: OSI Approved :: Apache Software License\n"
        "Classifier: Operating System :: POSIX :: Linux\n"
        "Classifier: Programming Language :: C\n"
        "Classifier: Programming Language :: Python :: 3\n"
        "Requires-Python: >=3.9\n"
        "Description-Content-Type: text/markdown\n"
        "\n%s" % (version, readme)
    ).encode()


def main():
    p = argparse.ArgumentParser()
    for name in ["out", "version-header", "license", "readme", "raylet", "command", "module", "pth"]:
        p.add_argument("--" + name, required=True)
    p.add_argument("python", nargs="*")
    args = p.parse_args()
    version = version_of(args.version_header)
    info = "%s-%s.dist-info" % (NAME, version)
    package = next((path for path in args.python if path.endswith(NAME + "/__init__.py")), None)
    if package and b'VERSION = "%s"' % version.encode() not in read(package):
        raise SystemExit("%s has no line: VERSION = \"%s\", the version of %s" % (package, version, args.version_header))
    files = {}  # path in the wheel -> (bytes, executable)
    for path in args.python:
        inside = path[path.rindex(NAME + "/"):]
        files[inside] = (read(path), False)
    files[NAME + "/bin/raylet"] = (read(args.raylet), True)
    files[NAME + "/_train.abi3.so"] = (read(args.module), True)
    files[NAME + ".pth"] = (read(args.pth), False)
    files["%s-%s.data/scripts/raylet-c" % (NAME, version)] = (read(args.command), True)
    files[info + "/LICENSE"] = (read(args.license), False)
    files[info + "/METADATA"] = (metadata(version, read(args.readme).decode()), False)
    files[info + "/WHEEL"] = (("Wheel-Version: 1.0\nGenerator: raylet-c\nRoot-Is-Purelib: false\nTag: %s\n" % TAG).encode(), False)
    record = ""
    for path in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[path][0]).digest()).rstrip(b"=").decode()
        record += "%s,sha256=%s,%d\n" % (path, digest, len(files[path][0]))
    files[info + "/RECORD"] = ((record + info + "/RECORD,,\n").encode(), False)
    expected = "%s-%s-%s.whl" % (NAME, version, TAG)
    if os.path.basename(args.out) != expected:
        raise SystemExit("the wheel of this version is called %s, not %s: see VERSION in python/BUILD" % (expected, os.path.basename(args.out)))
    with zipfile.ZipFile(args.out, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in sorted(files, key=lambda name: (name.startswith(info), name)):  # the dist-info last, as the format asks
            data, executable = files[path]
            entry = zipfile.ZipInfo(path, TIME)
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)


main()
