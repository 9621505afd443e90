-- Frees the space of the deleted runs, and corrects the planner's statistics. Runs outside of a
-- transaction. SKIP_LOCKED: skips a table on which autovacuum works now.
VACUUM (SKIP_LOCKED, ANALYZE) jobctl.job_runs, jobctl.job_attempts
