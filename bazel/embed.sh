#!/bin/sh
# Prints a text file as the lines of a C string: bazel/embed.sh FILE > FILE.inc
sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' "$1"
