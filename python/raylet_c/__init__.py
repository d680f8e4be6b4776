"""Ray worker nodes on a node daemon in C. The daemon is bin/raylet in this folder; the command is `raylet-c`."""
