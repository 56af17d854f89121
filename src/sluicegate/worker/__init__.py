"""Workers: what takes jobs and does them, a permit before every claim.

``exec.run_exec`` runs a command for each job. It is made of small parts that know little of each other: the dispatcher
claims as many jobs as there are free slots and carries finishes along, the crew runs one attempt in each slot, the
lease keeper sends the heartbeats, and the guardian, a process of its own, is the parent of every command.
"""
