"""What people do with jobs: the only thing the command line, the server and the workers call.

Each verb checks its input before anything is sent (``validate``), builds the call (``requests``), sends it
(``async_ops``, and ``sync_ops`` generated from it) and turns the answer into a model object or an error (``answers``).
"""
