-- Always raises the error of an effect that a trigger of another program did not let begin.sql
-- record.
SELECT jobctl.require_written('job_effects', chosen => 1, written => 0) AS never
