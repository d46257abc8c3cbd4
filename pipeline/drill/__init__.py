"""Drills: invented incidents of a fleet whose truth is known, to try an installation and to score the diagnosis.

The generator (everything here but `scoring`, `player` and `live`) shares no tables with the engine: it writes what the
real programs write. Sources: NVIDIA's Xid catalogue and driver, Linux, NCCL, PyTorch, Slurm and Kubernetes.
"""
