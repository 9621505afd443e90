-- Raises an error: a trigger of another program keeps an effect from being recorded.
SELECT jobctl.require_written('job_effects', chosen => 1, written => 0)
