"""Workers: what takes jobs and does them, a permit before every claim.

``worker.Worker`` runs the handlers of an app, ``exec.run_exec`` a command for each job. Both are a ``run.Run`` of small
parts that know little of each other: slots say what to claim now (``sharing`` for queues that share a worker, ``commands``
for exec), the dispatcher claims that and carries finishes along, the crew runs one attempt in each slot (``handling``,
``execution``), the lease keeper sends the heartbeats. The guardian, a process of its own, is the parent of every command.
"""
