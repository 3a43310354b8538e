"""Many targets, each judged in a process of its own that may hang, crash or lie about anything else.

``pool`` in the command's process keeps a ``server``, which imports torch once; for each target that
forks a ``worker`` under limits, waits for it, and sends back what it wrote: JSON that is read as data
and checked. The command's own process runs no user code and needs no torch.
"""
