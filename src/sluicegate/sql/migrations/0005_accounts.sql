-- The provider's account that refused an attempt for want of quota: such an attempt does not count towards max_attempts.
alter table sluicegate.attempt_end add column account text collate "C";
