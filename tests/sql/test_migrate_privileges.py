"""What a role needs to migrate: CREATE on the database, and nothing else."""

from __future__ import annotations

import psycopg
import pytest

from sluicegate.errors import Forbidden
from sluicegate.ops.doctor import Circumstances, diagnose
from sluicegate.sql.grants import ROLES
from sluicegate.sql.migrate import migrate, schema_state
from tests.sql.small import Small, ask, run
from tests.sql.test_migrate_turns import roles_server
from tests.support.servers import Server, TestRun

NAME = "privileges"
OWNERS = """
select array_agg(distinct pg_get_userbyid(o.owner)) from (
    select p.proowner from pg_proc p where p.pronamespace = 'sluicegate'::regnamespace
    union all select c.relowner from pg_class c where c.relnamespace = 'sluicegate'::regnamespace
) o(owner)
"""


@pytest.fixture
def cluster(test_run: TestRun, server_kind: str, worker_id: str) -> Server:
    """A server of this test's own with an empty database, none of our roles, and the roles ``plain`` and ``maker``."""
    server = roles_server(test_run, server_kind, worker_id)
    admin = server.dsn("postgres")
    run(
        admin,
        *(f"drop role if exists {role}" for role in (*ROLES, "plain", "maker", "someone")),
        f"create database {NAME} template template0",
        f"revoke all on database {NAME} from public",
        "create role plain login password 'plain'",
        "create role maker login password 'maker' createrole",
        "create role someone login password 'someone'",
        f"grant connect on database {NAME} to someone",
    )
    return server


@pytest.fixture
def plain(cluster: Server) -> str:
    """The DSN of a role with CONNECT and CREATE on the database, and nothing else."""
    run(cluster.dsn("postgres"), f"grant connect, create on database {NAME} to plain")
    return cluster.dsn(NAME, user="plain", password="plain")


@pytest.mark.both_versions
def test_create_on_the_database_is_enough(cluster: Server, plain: str) -> None:
    with psycopg.connect(plain) as conn:
        report = migrate(conn)
        assert report.missing_roles == ROLES
        assert report.applied
        assert schema_state(conn).state == "ok"
        assert ask(conn, "select sluicegate.enqueue('a', '1') ->> 'created'") == "true"
        conn.commit()
        assert migrate(conn).changed is False
    assert ask(plain, "select count(*) from pg_roles where rolname like 'sluicegate%'") == 0
    public = (
        "select count(*) from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a"
        " where p.pronamespace = 'sluicegate'::regnamespace and a.grantee = 0"
    )
    assert ask(plain, public) == 0


@pytest.mark.both_versions
def test_doctor_prints_what_a_dba_runs_and_the_next_migrate_grants(cluster: Server, plain: str) -> None:
    with psycopg.connect(plain) as conn:
        migrate(conn)
        found = {check.name: check for check in diagnose(Circumstances(plain)).checks}["privileges"]
        assert found.status == "warn"
        assert found.statements == tuple(f"create role {role} nologin;" for role in ROLES)
        assert found.next_step is not None
        assert "sluicegate migrate" in found.next_step

        run(cluster.dsn(NAME), *found.statements, "grant sluicegate_worker to someone")
        report = migrate(conn)
        assert (report.missing_roles, report.grants > 0, report.functions) == ((), True, ())
    worker = cluster.dsn(NAME, user="someone", password="someone")
    assert ask(worker, 'select sluicegate.claim(\'[{"queues": ["a"]}]\') is not null')
    with psycopg.connect(worker) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("select * from sluicegate.job")
    assert {check.name: check.status for check in diagnose(Circumstances(plain)).checks}["privileges"] == "ok"


@pytest.mark.both_versions
def test_a_table_of_somebody_else_in_the_schema_is_left_alone(cluster: Server, plain: str) -> None:
    run(cluster.dsn("postgres"), *(f"create role {role} nologin" for role in ROLES))
    with psycopg.connect(plain) as conn:
        migrate(conn)
        conn.commit()
        run(
            plain,
            "create table sluicegate.orders (id bigserial)",
            "grant select on sluicegate.orders to sluicegate_worker",
        )
        assert migrate(conn).changed is False
        conn.commit()
        run(plain, "grant insert on sluicegate.job to sluicegate_worker")
        assert migrate(conn).grants == 1
    held = "select has_table_privilege('sluicegate_worker', 'sluicegate.%s', '%s')"
    assert ask(plain, held % ("orders", "select"))
    assert not ask(plain, held % ("job", "insert"))
    assert {check.name: check.status for check in diagnose(Circumstances(plain)).checks}["privileges"] == "ok"


@pytest.mark.both_versions
def test_a_role_that_may_create_roles_creates_them(cluster: Server) -> None:
    run(cluster.dsn("postgres"), f"grant connect, create on database {NAME} to maker")
    with psycopg.connect(cluster.dsn(NAME, user="maker", password="maker")) as conn:
        report = migrate(conn)
        assert report.missing_roles == ()
        rows = conn.execute(
            "select rolname, rolcanlogin, rolsuper, rolinherit from pg_roles where rolname = any(%s)", ([*ROLES],)
        )
        assert sorted(rows) == sorted((role, False, False, True) for role in ROLES)


def test_a_role_without_create_is_told_the_grant_and_leaves_nothing(cluster: Server, small: Small) -> None:
    run(cluster.dsn("postgres"), f"grant connect on database {NAME} to plain")
    with pytest.raises(Forbidden, match=f"grant create on database {NAME} to plain"):
        small.migrate(cluster.dsn(NAME, user="plain", password="plain"))
    assert ask(cluster.dsn(NAME), "select count(*) from pg_namespace where nspname = 'sluicegate'") == 0


def test_a_schema_made_for_the_role_needs_no_create_on_the_database(cluster: Server, small: Small) -> None:
    run(cluster.dsn("postgres"), f"grant connect on database {NAME} to plain")
    run(cluster.dsn(NAME), "create schema sluicegate authorization plain")
    assert small.migrate(cluster.dsn(NAME, user="plain", password="plain")).applied == ("0001_thing",)


def test_a_superusers_first_run_leaves_everything_to_the_owner_of_the_schema(cluster: Server, small: Small) -> None:
    run(cluster.dsn(NAME), "create schema sluicegate authorization plain")
    report = small.migrate(cluster.dsn(NAME))
    assert (report.missing_roles, report.applied) == ((), ("0001_thing",))
    assert ask(cluster.dsn(NAME), OWNERS) == ["plain"]


def test_another_role_than_the_owner_is_told_to_become_the_owner(cluster: Server, plain: str, small: Small) -> None:
    small.migrate(plain)
    small.migration("0002_more", "alter table sluicegate.thing add column more integer;")
    run(cluster.dsn("postgres"), f"grant connect, create on database {NAME} to maker")
    maker = cluster.dsn(NAME, user="maker", password="maker")
    with pytest.raises(Forbidden, match="To migrate it, connect as plain"):
        small.migrate(maker)
    run(cluster.dsn("postgres"), "create role sluicegate_admin", "grant sluicegate_admin to maker")
    (small.root / "migrations" / "0002_more.sql").rename(small.root / "0002_more.sql")
    small.migrate(plain)
    (small.root / "0002_more.sql").rename(small.root / "migrations" / "0002_more.sql")
    with pytest.raises(
        Forbidden, match=r"Migration 0002_more is not permitted to the role maker.*Connect as the owner"
    ):
        small.migrate(maker)
    assert ask(plain, "select max(version) from sluicegate.migration") == 1


def test_a_superuser_may_migrate_what_belongs_to_another(cluster: Server, plain: str, small: Small) -> None:
    """As its owner: what a superuser makes must not belong to the superuser."""
    small.migrate(plain)
    small.function("later")
    small.migration("0002_more", "create table sluicegate.more (id bigint);")
    assert small.migrate(cluster.dsn(NAME)).functions == ("later",)
    assert small.migrate(plain).changed is False
    assert ask(plain, OWNERS) == ["plain"]


def test_a_member_of_the_owner_may_migrate_for_it(cluster: Server, plain: str, small: Small) -> None:
    small.migrate(plain)
    small.function("greet", body="select 'two'")
    run(cluster.dsn("postgres"), "grant plain to someone")
    assert small.migrate(cluster.dsn(NAME, user="someone", password="someone")).functions == ("greet",)
