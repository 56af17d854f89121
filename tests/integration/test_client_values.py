"""Values on their way through PostgreSQL and back."""

import json
import math
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sluicegate import Client, NewJob, SyncClient
from sluicegate.ops.text import storable_value
from tests.support.counts import rounds

stored_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# PostgreSQL keeps numbers as decimals: -0.0 becomes 0, and 1e300 a whole number of 301 digits.
numbers = st.integers() | st.floats(-1e15, 1e15).map(lambda number: number + 0.0)
payloads = st.recursive(
    st.none() | st.booleans() | numbers | stored_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(stored_text, inner, max_size=5),
    max_leaves=20,
)
results = st.recursive(
    st.none()
    | numbers
    | st.sampled_from([math.nan, math.inf, -math.inf])
    | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=())), inner, max_size=4)
    ),
    max_leaves=10,
)
several = settings(
    max_examples=rounds(10, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@several
@given(st.lists(payloads, min_size=1, max_size=30))
def test_every_payload_comes_back_as_it_went(dsn: str, values: list[Any]) -> None:
    with SyncClient(dsn) as client:
        client.enqueue_many([NewJob("q", value) for value in values])
        claims = client.claim("q", n=len(values)).claims
        assert [claim.job.payload for claim in claims] == values
        for claim in claims:
            client.complete(claim)


@several
@given(results)
def test_every_result_finishes_its_job_and_is_kept_in_escaped_form(dsn: str, result: Any) -> None:
    with SyncClient(dsn) as client:
        client.enqueue("q")
        (claim,) = client.claim("q").claims
        assert client.complete(claim, result).state == "done"
        kept = client.get_job(claim.job_id).job.result
        assert kept == json.loads(json.dumps(storable_value(result)))


async def test_the_largest_payload_and_result_pass(client: Client) -> None:
    largest = "x" * 1_048_574
    made = await client.enqueue("q", largest)
    (claim,) = (await client.claim("q")).claims
    assert claim.job.payload == largest
    await client.complete(claim, largest)
    detail = await client.get_job(made.id)
    assert (detail.job.payload, detail.job.result) == (largest, largest)
    assert 1_000 < detail.job.payload_size < 100_000, "so many x are stored compressed"


async def test_ten_thousand_jobs_go_in_one_call(client: Client) -> None:
    made = await client.enqueue_many(NewJob("q", index, dedup_key=f"k{index % 9_000}") for index in range(10_000))
    assert len(made) == 10_000
    assert sum(job.created for job in made) == 9_000
    assert made.jobs[9_500].id == made.jobs[500].id
