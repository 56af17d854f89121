-- Where the revisions of a queue's policies have got to, so that they go on after a clearing.
alter table sluicegate.queue add column policy_revision bigint not null default 0;
