"""Writes the text of a file as a C header: embed.py FILE NAME >gen/HEADER

The header is kept in the repository, so that no build needs this; test/prefork.c fails when it is older than the file.
"""
import sys


def main(path, name):
    print(f"/* Made by gen/embed.py from {path}: edit that. */\nstatic const char {name}[] =")
    with open(path, encoding="utf-8") as f:
        for line in f:
            text = line.rstrip("\n").replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?").replace("\t", "\\t")
            print(f'\t"{text}\\n"')
    print("\t;")


main(*sys.argv[1:])
