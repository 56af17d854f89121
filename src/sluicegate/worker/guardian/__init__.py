"""The guardian: the process that starts a worker's commands, is their parent, and outlives the worker by an instant.

Being the parent, it knows a command's process group before the command runs its first instruction, and can neither
miss nor mistake it. When its socket closes, because the worker ended in whatever way, it kills every process that came
from it, removes the worker's private folder and ends. It kills a command whose lease has run out even if the worker
stands still. If it dies itself, the kernel kills the commands, and the worker what they had started.

``client`` is the worker's side. ``process`` is the other one: single-threaded, so that forking is safe, and with
``command``, ``procfs`` and ``frames`` made of the standard library only, so that it starts in an instant.
"""
