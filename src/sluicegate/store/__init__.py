"""The database as Python sees it: one method for each SQL function, and no decisions.

``statements`` lists the SQL functions and their arguments. ``async_store`` calls them over any source of connections;
``async_connections`` is the pool that clients use. ``faults`` is the one place where PostgreSQL's errors become ours.
``calls`` keeps a call whole when the task that awaits it is cancelled. The ``sync_`` modules are generated from the
``async_`` ones by ``tools/unasync.py``.
"""
