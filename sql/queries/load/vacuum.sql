-- Frees the space of the deleted runs, and corrects the planner's statistics. Runs outside of a
-- transaction. Skips a table that autovacuum works on now.
VACUUM (SKIP_LOCKED, ANALYZE) jobctl.job_runs, jobctl.job_attempts
