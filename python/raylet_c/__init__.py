"""Ray worker nodes on a node daemon in C. The daemon is bin/raylet in this folder; the command is `raylet-c`."""
VERSION = "0.1.0"  # of the programs and the C module beside it too
