"""Checks that the folders of a part (raylet-c, train_backend) include only what the table in its README.md allows.

    python3 bazel/check_includes.py raylet-c/README.md train_backend/README.md

train_backend may also include raylet-c/base, its comm/ raylet-c/fabric. Rules: a source includes our headers by their path from the root;
from another folder only if the table lets it; grpc/ is included in rpc/ only, rdma/ in fabric/ only, uv.h in base/ only, protobuf-c in wire/
only (its headers may be seen through wire's), Python.h in module/ only. Tests and fuzz targets of a folder follow the folder's rule. A folder with sources that
the table lacks is an error.
"""
import os
import re
import sys

ROW = re.compile(r"^\|\s*`(\w+)/`\s*\|(.*)\|\s*([^|]*?)\s*\|\s*$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
THIRD_PARTY = {"grpc/": {"rpc"}, "rdma/": {"fabric"}, "uv.h": {"base"}, "uv/": {"base"}, "protobuf-c/": {"wire"}, "python": {"module"}}
PARTS = {"raylet-c", "train_backend"}
SHARED = {"train_backend": ("raylet-c/base/",)}  # part -> what all of its folders may include of other parts
SHARED_BY = {("train_backend", "comm"): ("raylet-c/fabric/",)}  # what one of its folders may


def read_table(path):
    """folder -> the set of folders it may include."""
    table = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            row = ROW.match(line)
            if not row:
                continue
            folder, allowed = row.group(1), row.group(3)
            table[folder] = allowed
    folders = set(table)
    for folder, allowed in table.items():
        if allowed == "all":
            table[folder] = folders
        elif allowed == "nothing of ours":
            table[folder] = set()
        else:
            table[folder] = {word.strip(" `/") for word in allowed.split(",")}
            unknown = table[folder] - folders
            if unknown:
                raise SystemExit("%s: %s/ may include %s, which the table has no row for" % (path, folder, ", ".join(sorted(unknown))))
    return table


def sources(top):
    for folder, folders, names in os.walk(top, followlinks=True):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.join(folder, name)


def check(top, table):
    problems, count, part = [], 0, os.path.basename(top)
    for path in sources(top):
        count += 1
        relative = os.path.relpath(path, top)
        folder = relative.split(os.sep)[0]
        if folder not in table:
            problems.append("%s/%s: folder %s/ is not in the table of the README.md" % (part, relative, folder))
            continue
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                kind, target = match.groups()
                where = "%s/%s:%d" % (part, relative, number)
                for prefix, owners in THIRD_PARTY.items():
                    if target.startswith(prefix) and folder not in owners:
                        problems.append("%s: %s is for %s/ only" % (where, target, "/, ".join(sorted(owners))))
                owner = target.split("/")[0]
                if owner == part:
                    other = target.split("/")[1]
                    if other != folder and other not in table[folder]:
                        problems.append("%s: %s/ may not include %s" % (where, folder, target))
                elif owner in PARTS:
                    if not target.startswith(SHARED.get(part, ()) + SHARED_BY.get((part, folder), ())):
                        problems.append("%s: %s may not include %s" % (where, part, target))
                elif kind == '"' and not os.path.dirname(relative).endswith(("test", "fuzz")):
                    problems.append('%s: name "%s" by its path from the root' % (where, target))
    return problems, count


def main():
    failed = False
    for number, readme in enumerate(sys.argv[1:], 1):
        table = read_table(readme)
        if not table:
            raise SystemExit("%s: no table of folders found" % readme)
        top = os.path.dirname(os.path.abspath(readme))
        problems, count = check(top, table)
        for problem in problems:
            print("# " + problem)
        print("%s %d - %d files of %s include only what the table allows" % ("not ok" if problems else "ok", number, count, os.path.basename(top)))
        failed = failed or bool(problems)
    print("1..%d" % len(sys.argv[1:]))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
