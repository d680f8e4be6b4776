"""Adds up what a test run counted, for the last line of bazel/test.sh.

    tally.py FOLDER      reads FOLDER/*.tap (TAP) and FOLDER/*.json (Bazel's build events)

A test program that passed without printing TAP counts as one; one that failed without a "not ok" counts as one failed;
one that could not be built, too. Prints the failed ones and "N passed, N failed, N skipped"; the status is 1 when anything
failed or nothing ran.
"""
import glob
import json
import os
import re
import sys
import urllib.parse

LINE = re.compile(r"^(ok|not ok)\b\s*\d*\s*-?\s*(.*)$")
SKIP = re.compile(r"#\s*SKIP\b", re.I)


def count_tap(text):
    passed, failed, skipped = [], [], []
    for line in text.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        if match.group(1) == "not ok":
            failed.append(match.group(2))
        elif SKIP.search(match.group(2)):
            skipped.append(match.group(2))
        else:
            passed.append(match.group(2))
    return passed, failed, skipped


def count_events(path):
    """One Bazel run: each test target's log, and the targets that were not built."""
    passed, failed, skipped = [], [], []
    with open(path, encoding="utf-8") as f:
        events = [json.loads(line) for line in f if line.strip()]
    for event in events:
        label = event.get("id", {}).get("testResult", {}).get("label")
        if label:
            result = event["testResult"]
            logs = [a["uri"] for a in result.get("testActionOutput", []) if a["name"] == "test.log" and "uri" in a]
            text = ""
            if logs:
                with open(urllib.parse.unquote(urllib.parse.urlparse(logs[0]).path), encoding="utf-8", errors="replace") as f:
                    text = f.read()
            p, n, s = count_tap(text)
            if result["status"] != "PASSED" and not n:
                n = [result["status"]]
            elif result["status"] == "PASSED" and not p + n + s:
                p = ["passed"]
            passed += p
            skipped += s
            failed += [label + ": " + name for name in n]
        target = event.get("id", {}).get("targetCompleted", {}).get("label")
        if target and not event.get("completed", {}).get("success") and event.get("aborted", {}).get("reason") not in ("SKIPPED", "NO_BUILD"):
            failed.append(target + ": does not build")
    return passed, failed, skipped


def main():
    folder = sys.argv[1]
    passed, failed, skipped = 0, [], 0
    for path in sorted(glob.glob(os.path.join(folder, "*.tap")) + glob.glob(os.path.join(folder, "*.json"))):
        stage = os.path.splitext(os.path.basename(path))[0]
        if path.endswith(".json"):
            p, n, s = count_events(path)
        else:
            with open(path, encoding="utf-8", errors="replace") as f:
                text = f.read()
            p, n, s = count_tap(text)
            if not p + n + s and "1..0" not in text:  # it died before its first result
                n = ["it left no result"]
        passed += len(p)
        skipped += len(s)
        failed += ["%s: %s" % (stage, name) for name in n]
        print("%-24s %5d passed %3d failed %3d skipped" % (stage, len(p), len(n), len(s)))
    for name in failed:
        print("failed: " + name)
    print("%d passed, %d failed, %d skipped" % (passed, len(failed), skipped))
    sys.exit(1 if failed or not passed else 0)


main()
